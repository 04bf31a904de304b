package speculate

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/smelt-go/smelt/drafter"
)

// Stream is the target's own text after a prompt, token by token, with what
// the target computed on the way. Drafters are replayed against it without
// running the target again.
type Stream struct {
	Prompt []int32
	Output []int32
	// Head are the rows of all tokens of the prompt but the last; Rows[i] is
	// that of the token before Output[i].
	Head drafter.Rows
	Rows []drafter.Rows
	// Logits[i] are those that Output[i] is the largest of; nil if the target
	// has none.
	Logits [][]float32
	WallMs float64
}

// Walk is how Serial gets from token to token.
type Walk int

// The ways to walk.
const (
	WalkDecode Walk = iota // the decode function
	// WalkZeros uses the verify function, with zeros in the slots where drafts
	// would be.
	WalkZeros
)

// Serial decodes without speculation. It stops where Run would.
func Serial(ctx context.Context, t Target, prompt []int32, walk Walk, o Options) (*Stream, error) {
	if err := o.check(t, prompt); err != nil {
		return nil, err
	}
	last := len(prompt) - 1
	s := &Stream{Prompt: slices.Clone(prompt)}
	t.Reset()
	var err error
	if s.Head, err = t.Prefill(prompt[:last]); err != nil {
		return nil, err
	}
	pending := prompt[last]
	start := time.Now()
	for len(s.Output) < o.MaxTokens && t.Pos() < t.Context() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var c Choice
		var r drafter.Rows
		if walk == WalkDecode {
			c, r, err = t.Decode(pending)
		} else {
			slots := make([]int32, 1+min(o.Gamma, t.Context()-t.Pos()-1))
			slots[0] = pending
			var all []Choice
			if all, err = t.Verify(slots); err == nil {
				c = all[0]
				r, err = t.Commit(1)
			}
		}
		if err != nil {
			return nil, err
		}
		s.Rows = append(s.Rows, r)
		if c.Logits != nil {
			s.Logits = append(s.Logits, slices.Clone(c.Logits))
		}
		s.Output = append(s.Output, c.Token)
		pending = c.Token
		if !o.IgnoreEOS && slices.Contains(t.EOS(), c.Token) {
			break
		}
	}
	s.WallMs = ms(time.Since(start))
	return s, nil
}

// text is the prompt and the output.
func (s *Stream) text() []int32 { return slices.Concat(s.Prompt, s.Output) }

// Replay lets a source draft at every position of a stream, from the text so
// far, and compares with what follows: a round a position. The target does not
// run. Where the stream has logits, the record also has the expected acceptance
// by slot.
//
// At the end of the stream fewer drafts can be compared: they are not made.
func Replay(ctx context.Context, s Source, stream *Stream, gamma int) (*Record, error) {
	rec := &Record{PromptIDs: stream.Prompt, Output: stream.Output, Generated: len(stream.Output), WallMs: stream.WallMs}
	s.Reset()
	if len(stream.Head.Tokens) > 0 {
		if err := s.Commit(stream.Head); err != nil {
			return nil, fmt.Errorf("speculate: %s: %w", s.Name(), err)
		}
	}
	pending := stream.Prompt[len(stream.Prompt)-1]
	for i, token := range stream.Output {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, err := draftOf(s, pending, min(gamma, len(stream.Output)-i))
		if err != nil {
			return nil, err
		}
		n := 0
		for n < len(d.Tokens) && d.Tokens[n] == stream.Output[i+n] {
			n++
		}
		rec.add(Round{len(d.Tokens), n})
		rec.FirstHits = append(rec.FirstHits, n > 0)
		if len(d.Tokens) > 0 {
			rec.firsts = append(rec.firsts, d.Tokens[0])
		} else {
			rec.firsts = append(rec.firsts, -1)
		}
		rec.expect(d, n, stream, i)
		if err := s.Commit(stream.Rows[i]); err != nil {
			return nil, fmt.Errorf("speculate: %s: %w", s.Name(), err)
		}
		pending = token
	}
	return rec, nil
}

// expect adds 1 − TV of the first n+1 drafts, whose distributions the drafter
// and the target made from the same text.
func (r *Record) expect(d drafter.Draft, n int, stream *Stream, at int) {
	if stream.Logits == nil || d.Logits == nil {
		return
	}
	for j := range min(n+1, len(d.Tokens)) {
		if len(d.Logits[j]) != len(stream.Logits[at+j]) {
			return
		}
		for len(r.Expected) <= j {
			r.Expected, r.Counted = append(r.Expected, 0), append(r.Counted, 0)
		}
		r.Expected[j] += ExpectedAcceptance(stream.Logits[at+j], d.Logits[j])
		r.Counted[j]++
	}
}

// Drift compares a text with the serial one.
type Drift struct {
	Tokens int `json:"tokens"` // of the common length
	First  int `json:"first"`  // index of the first that differs; -1: none
	Flips  int `json:"flips"`  // tokens that differ; after the first, texts go their own ways
	// Margin is how far the serial text's token was ahead of the other at the
	// first flip, if logits are known.
	Margin *float64 `json:"margin,omitempty"`
}

// NewDrift compares an output with that of a stream.
func NewDrift(serial *Stream, output []int32) Drift {
	d := Drift{Tokens: min(len(serial.Output), len(output)), First: -1}
	for i := range d.Tokens {
		if serial.Output[i] == output[i] {
			continue
		}
		d.Flips++
		if d.First < 0 {
			d.First = i
			if serial.Logits != nil {
				m := float64(serial.Logits[i][serial.Output[i]]) - float64(serial.Logits[i][output[i]])
				d.Margin = &m
			}
		}
	}
	if d.First < 0 && len(serial.Output) != len(output) {
		d.First = d.Tokens
	}
	return d
}

// How near a tie is, as a share of the logit, that arithmetic can turn round.
const (
	FP16Ties = 4.0 / 1024       // four steps of fp16
	FP32Ties = 32.0 / (1 << 23) // 32 steps of float32: functions of other lengths add in another order
)

// Tie reports whether texts part at a token that was preferred by no more than
// this share of its logit: by what rounding can turn round.
func (d Drift) Tie(serial *Stream, share float64) bool {
	if d.Margin == nil || d.First >= len(serial.Output) {
		return false
	}
	logit := float64(serial.Logits[d.First][serial.Output[d.First]])
	return *d.Margin <= share*max(1, math.Abs(logit))
}
