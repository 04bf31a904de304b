package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/smelt-go/smelt/internal/diskspace"
)

// WriteFile writes tensors to a .safetensors file, streaming one after the
// other, with the canonical layout: later dtypes first, then by name, header
// padded to 8 bytes. metadata may be nil; transformers expects "format": "pt".
// The file appears complete or not at all. It may replace a file that tensors
// are being read from.
func WriteFile(path string, tensors []Tensor, metadata map[string]string) error {
	if err := writeFile(path, tensors, metadata); err != nil {
		return fmt.Errorf("checkpoint: %s: %w", filepath.Base(path), err)
	}
	syncDir(filepath.Dir(path))
	return nil
}

// Encode writes the bytes of a .safetensors file to w, as WriteFile does. A
// tensor's bytes go to w as its WriteTo gives them: buffer w if there are many
// small ones.
func Encode(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	sorted, head, err := layOut(tensors, metadata)
	if err == nil {
		err = stream(w, sorted, head)
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func writeFile(path string, tensors []Tensor, metadata map[string]string) error {
	p, err := writePartial(path, tensors, metadata)
	if err != nil {
		return err
	}
	return p.publish()
}

// writePartial writes a complete file that is not published yet.
func writePartial(path string, tensors []Tensor, metadata map[string]string) (*partial, error) {
	sorted, head, err := layOut(tensors, metadata)
	if err != nil {
		return nil, err
	}
	p, err := newPartial(path)
	if err != nil {
		return nil, err
	}
	size := int64(len(head))
	for _, t := range sorted {
		size += NumBytes(t)
	}
	diskspace.Reserve(p.f, size)
	err = stream(p.w, sorted, head)
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

func stream(w io.Writer, sorted []Tensor, head []byte) error {
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, t := range sorted {
		n, err := t.WriteTo(w)
		Release(t)
		if err != nil {
			return fmt.Errorf("writing tensor %q: %w", t.Name(), err)
		}
		if want := NumBytes(t); n != want {
			return fmt.Errorf("tensor %q: wrote %d bytes, %v %v has %d", t.Name(), n, t.DType(), t.Shape(), want)
		}
	}
	return nil
}

// layOut returns the tensors in file order and the encoded header with its
// length prefix.
func layOut(tensors []Tensor, metadata map[string]string) ([]Tensor, []byte, error) {
	sorted := slices.Clone(tensors)
	slices.SortStableFunc(sorted, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType(), a.DType()), cmp.Compare(a.Name(), b.Name()))
	})
	buf := bytes.NewBuffer(make([]byte, 8, 1024))
	buf.WriteByte('{')
	if len(metadata) > 0 {
		if err := encodeMetadata(buf, metadata); err != nil {
			return nil, nil, err
		}
	}
	seen := make(map[string]bool, len(sorted))
	var offset int64
	for _, t := range sorted {
		name := t.Name()
		switch {
		case seen[name]:
			return nil, nil, fmt.Errorf("tensor %q is given twice", name)
		case name == metadataKey:
			return nil, nil, fmt.Errorf("tensor %q: the name is reserved", name)
		case !utf8.ValidString(name):
			return nil, nil, fmt.Errorf("tensor %q: name is not valid UTF-8", name)
		case len(t.Shape()) > maxRank:
			return nil, nil, fmt.Errorf("tensor %q: shape has more than %d dimensions", name, maxRank)
		}
		seen[name] = true
		if err := check(t); err != nil {
			return nil, nil, err
		}
		size, err := byteSize(t.DType(), t.Shape())
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		if offset+size < offset {
			return nil, nil, fmt.Errorf("tensor %q: total size overflows", name)
		}
		if buf.Len() > 9 {
			buf.WriteByte(',')
		}
		encodeString(buf, name)
		fmt.Fprintf(buf, `:{"dtype":"%v","shape":[`, t.DType())
		for i, d := range t.Shape() {
			if i > 0 {
				buf.WriteByte(',')
			}
			buf.WriteString(strconv.Itoa(d))
		}
		fmt.Fprintf(buf, `],"data_offsets":[%d,%d]}`, offset, offset+size)
		offset += size
	}
	buf.WriteByte('}')
	for buf.Len()%8 != 0 {
		buf.WriteByte(' ')
	}
	head := buf.Bytes()
	if n := len(head) - 8; n > maxHeaderBytes {
		return nil, nil, fmt.Errorf("header of %d bytes exceeds the format's limit of %d (write shards)", n, maxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(head, uint64(len(head)-8))
	return sorted, head, nil
}

func encodeMetadata(buf *bytes.Buffer, metadata map[string]string) error {
	encodeString(buf, metadataKey)
	buf.WriteString(":{")
	for i, k := range slices.Sorted(maps.Keys(metadata)) {
		v := metadata[k]
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return fmt.Errorf("metadata %q: not valid UTF-8", k)
		}
		if i > 0 {
			buf.WriteByte(',')
		}
		encodeString(buf, k)
		buf.WriteByte(':')
		encodeString(buf, v)
	}
	buf.WriteByte('}')
	return nil
}

// encodeString writes a JSON string with no escapes but the necessary ones:
// the bytes the reference implementation writes.
func encodeString(buf *bytes.Buffer, s string) {
	buf.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			buf.WriteByte('\\')
			buf.WriteByte(c)
		case '\b':
			buf.WriteString(`\b`)
		case '\f':
			buf.WriteString(`\f`)
		case '\n':
			buf.WriteString(`\n`)
		case '\r':
			buf.WriteString(`\r`)
		case '\t':
			buf.WriteString(`\t`)
		default:
			if c < ' ' {
				fmt.Fprintf(buf, `\u%04x`, c)
			} else {
				buf.WriteByte(c)
			}
		}
	}
	buf.WriteByte('"')
}

// WriteSharded writes a checkpoint directory. Tensors go into shards in the
// given order, a new one starting where maxShardBytes of data would be
// exceeded; a larger tensor gets a shard of its own. What fits into one shard
// becomes model.safetensors; else files are named model-00001-of-00003.safetensors
// and so on, beside model.safetensors.index.json. maxShardBytes ≤ 0 means no
// limit.
//
// An existing checkpoint in dir is replaced: all new files are complete before
// the first one changes, and its index goes first and comes last, so that a
// killed run leaves the old checkpoint, the new one, or none that opens.
func WriteSharded(dir string, tensors []Tensor, metadata map[string]string, maxShardBytes int64) error {
	shards, total, err := divide(tensors, maxShardBytes)
	if err != nil {
		return fmt.Errorf("checkpoint: %s: %w", dir, err)
	}
	_, statErr := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	clearStale(dir, ".model")
	if err := writeShards(dir, shards, total, metadata); err != nil {
		if errors.Is(statErr, os.ErrNotExist) {
			_ = os.Remove(dir) // fails unless it is empty, as it should be
		}
		return fmt.Errorf("checkpoint: %s: %w", dir, err)
	}
	syncDir(dir)
	return nil
}

// divide assigns tensors to shards and returns their total size.
func divide(tensors []Tensor, limit int64) (shards [][]Tensor, total int64, err error) {
	seen := make(map[string]bool, len(tensors))
	var current []Tensor
	var used int64
	for _, t := range tensors {
		if seen[t.Name()] {
			return nil, 0, fmt.Errorf("tensor %q is given twice", t.Name())
		}
		seen[t.Name()] = true
		size := NumBytes(t)
		if limit > 0 && len(current) > 0 && used+size > limit {
			shards, current, used = append(shards, current), nil, 0
		}
		current = append(current, t)
		used += size
		total += size
	}
	return append(shards, current), total, nil
}

func writeShards(dir string, shards [][]Tensor, total int64, metadata map[string]string) (err error) {
	var done []*partial
	defer func() {
		for _, p := range done {
			p.discard()
		}
	}()
	keep := make(map[string]bool)
	shardOf := make(map[string]string)
	for i, shard := range shards {
		name := singleName
		if len(shards) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
		}
		p, err := writePartial(filepath.Join(dir, name), shard, metadata)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		done = append(done, p)
		keep[name] = true
		for _, t := range shard {
			shardOf[t.Name()] = name
		}
	}
	if len(shards) > 1 {
		p, err := newPartial(filepath.Join(dir, indexName))
		if err != nil {
			return err
		}
		done = append(done, p)
		encodeIndex(p.w, shardOf, total)
		if err := p.finish(); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, indexName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := removeOld(dir, keep); err != nil {
		return err
	}
	for len(done) > 0 {
		p := done[0]
		done = done[1:]
		if err := p.publish(); err != nil {
			return err
		}
	}
	return nil
}

var shardName = regexp.MustCompile(`^model(-\d{5}-of-\d{5})?\.safetensors$`)

// removeOld removes the files of an earlier checkpoint that the new one does
// not overwrite.
func removeOld(dir string, keep map[string]bool) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if shardName.MatchString(e.Name()) && !keep[e.Name()] {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// encodeIndex writes the index as transformers does: sorted, indented by two.
// Errors stay in w until it is flushed.
func encodeIndex(w io.Writer, shardOf map[string]string, total int64) {
	var buf bytes.Buffer
	fmt.Fprintf(&buf, "{\n  \"metadata\": {\n    \"total_size\": %d\n  },\n  \"weight_map\": {", total)
	for i, name := range slices.Sorted(maps.Keys(shardOf)) {
		if i > 0 {
			buf.WriteByte(',')
		}
		buf.WriteString("\n    ")
		encodeString(&buf, name)
		buf.WriteString(": ")
		encodeString(&buf, shardOf[name])
	}
	buf.WriteString("\n  }\n}\n")
	_, _ = w.Write(buf.Bytes())
}
