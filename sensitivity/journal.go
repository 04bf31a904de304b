package sensitivity

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// journal is a file of JSON lines: what run it belongs to, then tensors as they
// are done. Every line is on disk before the next tensor begins. A line that was
// cut off counts as not written.
type journal struct {
	f    *os.File
	path string
}

// openJournal starts or takes up a journal. tensors receive what it holds; done
// says which.
func openJournal(path string, header *Map, tensors []Tensor) (*journal, map[int]bool, error) {
	done := map[int]bool{}
	if path == "" {
		return &journal{}, done, nil
	}
	head, err := json.Marshal(header)
	if err != nil {
		return nil, nil, fmt.Errorf("sensitivity: %w", err)
	}
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("sensitivity: %w", err)
	}
	valid := 0
	if nl := bytes.IndexByte(data, '\n'); nl >= 0 {
		if !bytes.Equal(data[:nl], head) {
			return nil, nil, fmt.Errorf("sensitivity: %s belongs to another run: another checkpoint, text, list of candidates or processor (finish that one, or remove the file)", path)
		}
		valid = nl + 1
		byPath := map[string]int{}
		for i, t := range tensors {
			byPath[t.Path] = i
		}
		r := bufio.NewReader(bytes.NewReader(data[valid:]))
		for {
			line, err := r.ReadBytes('\n')
			if err == io.EOF {
				break // what is left is not a whole line
			}
			var t Tensor
			i, ok := 0, false
			if err := json.Unmarshal(line, &t); err == nil {
				i, ok = byPath[t.Path]
			}
			if !ok {
				return nil, nil, fmt.Errorf("sensitivity: %s is damaged (remove it and start over)", path)
			}
			tensors[i] = t
			done[i] = true
			valid += len(line)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("sensitivity: %w", err)
	}
	j := &journal{f, path}
	if err = f.Truncate(int64(valid)); err == nil {
		_, err = f.Seek(0, io.SeekEnd)
	}
	if err == nil && valid == 0 {
		err = j.line(head)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("sensitivity: %w", err), f.Close())
	}
	return j, done, nil
}

func (j *journal) line(data []byte) error {
	if _, err := j.f.Write(append(data, '\n')); err != nil {
		return fmt.Errorf("sensitivity: %w", err)
	}
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("sensitivity: %w", err)
	}
	return nil
}

func (j *journal) add(t Tensor) error {
	if j.f == nil {
		return nil
	}
	data, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("sensitivity: %w", err)
	}
	return j.line(data)
}

func (j *journal) close() {
	if j != nil && j.f != nil {
		j.f.Close()
	}
}
