package milblob

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// pieceBytes is what one goroutine reads and writes at a time. Pieces end at
// multiples of it in the file, so that most writes fill whole pages.
const pieceBytes = 1 << 20

// maxWriters bounds the memory of a team; more of them would only wait for the
// file.
const maxWriters = 8

// piece is a part of a blob to be copied into the file.
type piece struct {
	seq  int64
	w    *Writer
	b    *blob
	read ReadRange
	head []byte // precedes the data in the file
	off  int64  // in the data
	n    int
}

// team is the goroutines that write pieces. Pieces are started in order, and of
// several failures the first piece's counts, so errors do not depend on timing.
type team struct {
	queue   chan piece
	members sync.WaitGroup
	flying  sync.WaitGroup
	next    int64

	// One writes while the others read and convert: writers of one file would
	// spin for its lock in the kernel.
	file sync.Mutex

	bad atomic.Int64 // 1 + seq of the first piece that failed; 0: none
	mu  sync.Mutex
	err error
}

// write hands the pieces of b to the team.
func (t *team) write(w *Writer, b *blob, read ReadRange) {
	if t.queue == nil {
		t.start()
	}
	p := piece{w: w, b: b, read: read, head: b.head()}
	for {
		room := pieceBytes - (b.data()+p.off)%pieceBytes
		p.n = int(min(b.size-p.off, room))
		p.seq = t.next
		t.next++
		t.flying.Add(1)
		t.queue <- p
		p.off += int64(p.n)
		if p.off == b.size {
			return
		}
		p.head = nil
	}
}

func (t *team) start() {
	t.queue = make(chan piece, 64)
	for range min(runtime.GOMAXPROCS(0), maxWriters) {
		t.members.Go(func() {
			buf := make([]byte, 2*alignment+pieceBytes)
			for p := range t.queue {
				if bad := t.bad.Load(); bad == 0 || p.seq < bad {
					if err := p.copy(buf); err != nil {
						t.fail(p.seq, fmt.Errorf("milblob: write %s[%d]: %w", p.b.dtype, p.b.elements, err))
					}
				}
				t.flying.Done()
			}
		})
	}
}

// copy moves the piece through buf, where data are aligned.
func (p *piece) copy(buf []byte) error {
	if err := p.w.check(); err != nil {
		return err
	}
	const start = 2 * alignment
	data := buf[start : start+p.n]
	if err := p.read(data, p.off); err != nil {
		return err
	}
	from := start - len(p.head)
	copy(buf[from:], p.head)
	p.w.team.file.Lock()
	_, err := p.w.out.WriteAt(buf[from:start+p.n], p.b.data()+p.off-int64(len(p.head)))
	p.w.team.file.Unlock()
	if err != nil {
		return err
	}
	p.w.wrote(int64(p.n))
	return nil
}

func (t *team) fail(seq int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if bad := t.bad.Load(); bad == 0 || seq < bad-1 {
		t.bad.Store(seq + 1)
		t.err = err
	}
}

func (t *team) failed() bool { return t.bad.Load() != 0 }

// wait returns when all pieces are written, or the first failure.
func (t *team) wait() error {
	t.flying.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

func (t *team) close() {
	if t.queue != nil {
		close(t.queue)
		t.members.Wait()
		t.queue = nil
	}
}
