package milblob

import "fmt"

// stream writes a blob whose source gives its bytes in order only.
func (w *Writer) stream(b *blob, src Source) error {
	s := &sink{w: w, at: b.start, left: b.size, buf: make([]byte, 0, pieceBytes)}
	s.buf = append(s.buf, b.head()...)
	if _, err := src.WriteTo(s); err != nil {
		return err
	}
	if s.left != 0 {
		return fmt.Errorf("source wrote %d of %d bytes", b.size-s.left, b.size)
	}
	return s.flush()
}

// sink collects what a source writes into large pieces and stops it at the
// agreed size.
type sink struct {
	w    *Writer
	at   int64 // of buf in the file
	left int64
	buf  []byte
}

func (s *sink) Write(p []byte) (int, error) {
	if int64(len(p)) > s.left {
		return 0, fmt.Errorf("source writes more bytes than its type and count say")
	}
	done := 0
	for done < len(p) {
		if len(s.buf) == cap(s.buf) {
			if err := s.flush(); err != nil {
				return done, err
			}
		}
		n := min(len(p)-done, cap(s.buf)-len(s.buf))
		s.buf = append(s.buf, p[done:done+n]...)
		done += n
		s.left -= int64(n)
	}
	s.w.wrote(int64(done))
	return done, nil
}

func (s *sink) flush() error {
	if err := s.w.check(); err != nil {
		return err
	}
	if _, err := s.w.out.WriteAt(s.buf, s.at); err != nil {
		return err
	}
	s.at += int64(len(s.buf))
	s.buf = s.buf[:0]
	return nil
}
