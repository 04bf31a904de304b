package milblob

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// large are blobs of several pieces and awkward lengths. The second differs
// from the first in one byte that no sketch looks at; the last repeats it.
func large() []Bytes {
	r := rand.New(rand.NewPCG(1, 2))
	data := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	first := data(3*pieceBytes + 77)
	second := bytes.Clone(first)
	second[pieceBytes+sampleBytes]++
	blobs := []Bytes{{Type: UInt8, Data: first}, {Type: UInt8, Data: data(5)}, {Type: UInt8, Data: second}, {Type: UInt8, Data: data(pieceBytes)},
		{Type: UInt8, Data: data(2 * sampleBytes)}, {Type: UInt8, Data: data(sampleBytes + 1)}, {Type: UInt8, Data: second}, {Type: UInt8, Data: first}}
	for i := range blobs {
		blobs[i].N = int64(len(blobs[i].Data))
	}
	return blobs
}

// The file does not depend on the number of goroutines, nor on which sources
// give ranges.
func TestPieces(t *testing.T) {
	blobs := large()
	var want []byte
	for _, procs := range []int{1, 2, 5} {
		for _, stream := range []int{0, 1, 2, 3, 100} { // every which source streams
			old := runtime.GOMAXPROCS(procs)
			out := &memory{}
			var wrote atomic.Int64
			w := NewWriter(out, Options{Wrote: func(n int64) { wrote.Add(n) }})
			var offsets []uint64
			total := int64(0)
			for i, b := range blobs {
				var src Source = b
				if stream > 0 && i%stream == 0 {
					src = streamed{b}
				}
				at, err := w.Add(nil, src)
				if err != nil {
					t.Fatal(err)
				}
				offsets = append(offsets, at)
				total += b.N
			}
			if err := w.Finish(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			runtime.GOMAXPROCS(old)
			if offsets[0] != offsets[7] || offsets[2] != offsets[6] || offsets[0] == offsets[2] {
				t.Fatalf("offsets %v", offsets)
			}
			if wrote.Load() != total || w.Count() != 6 || w.Saved() != blobs[0].N+blobs[2].N {
				t.Errorf("%d of %d bytes reported, %d blobs, %d bytes saved", wrote.Load(), total, w.Count(), w.Saved())
			}
			if want == nil {
				want = out.data
				f, err := Parse("test", want)
				if err != nil {
					t.Fatal(err)
				}
				for i, b := range blobs {
					if _, got, err := f.Blob(offsets[i]); err != nil || !bytes.Equal(got, b.Data) {
						t.Fatalf("blob %d changed (%v)", i, err)
					}
				}
			}
			if !bytes.Equal(out.data, want) {
				t.Fatalf("%d goroutines, every %d streamed: other bytes", procs, stream)
			}
		}
	}
}

// cracked fails where its data are marked.
type cracked struct{ Bytes }

func (c cracked) Ranges() (ReadRange, bool) {
	return func(dst []byte, off int64) error {
		copy(dst, c.Data[off:])
		if i := bytes.IndexByte(dst, 0xee); i >= 0 {
			return fmt.Errorf("broken at %d", off+int64(i))
		}
		return nil
	}, true
}

// Of several failures the first in the file's order is reported, whenever the
// others happen.
func TestFirstFailureCounts(t *testing.T) {
	blank := Bytes{UInt8, 4 * pieceBytes, make([]byte, 4*pieceBytes)}
	bad := Bytes{UInt8, 4 * pieceBytes, make([]byte, 4*pieceBytes)}
	bad.Data[2*pieceBytes-1], bad.Data[3*pieceBytes], bad.Data[4*pieceBytes-1] = 0xee, 0xee, 0xee
	worse := Bytes{UInt8, 9, bytes.Repeat([]byte{0xee}, 9)}
	for range 20 {
		w := NewWriter(&memory{}, Options{})
		_, err := w.Add(nil, blank)
		if err != nil {
			t.Fatal(err)
		}
		for _, src := range []Source{cracked{bad}, cracked{worse}, cracked{worse}, blank} {
			if _, e := w.Add(nil, src); e != nil && err == nil {
				err = e
			}
		}
		if e := w.Finish(); err == nil {
			err = e
		}
		w.Close()
		if err == nil || !strings.Contains(err.Error(), "milblob: write uint8[4194304]: broken at 2097151") {
			t.Fatalf("error %v", err)
		}
	}
}

func TestCheckStops(t *testing.T) {
	stop := errors.New("stop")
	b := large()[0]
	for _, src := range []Source{b, streamed{b}} {
		var calls atomic.Int64
		w := NewWriter(&memory{}, Options{Check: func() error {
			if calls.Add(1) > 2 {
				return stop
			}
			return nil
		}})
		_, _ = w.Add(nil, src)
		if err := w.Finish(); !errors.Is(err, stop) {
			t.Errorf("%T: %v", src, err)
		}
		w.Close()
		w.Close()
	}
}

// full is an Output without room.
type full struct{ memory }

var errFull = errors.New("no space left")

func (f *full) WriteAt(p []byte, at int64) (int, error) {
	if at+int64(len(p)) > 2*pieceBytes {
		return 0, errFull
	}
	return f.memory.WriteAt(p, at)
}

func TestFullDisk(t *testing.T) {
	w := NewWriter(&full{}, Options{})
	defer w.Close()
	for _, b := range large() {
		_, _ = w.Add(nil, b)
	}
	if err := w.Finish(); !errors.Is(err, errFull) {
		t.Errorf("error %v", err)
	}
}

// After a failure the writer's goroutines are gone once it is closed.
func TestCloseEndsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	w := NewWriter(&full{}, Options{})
	for _, b := range large() {
		_, _ = w.Add(nil, b)
	}
	w.Close()
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}
