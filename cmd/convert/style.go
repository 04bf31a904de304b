package main

import (
	"fmt"
	"os"
	"strings"
)

// paint colours text where people look at it.
func (s *session) paint(code, text string) string {
	if !terminal(s.stdout) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s *session) bold(text string) string { return s.paint("1", text) }
func (s *session) good(text string) string { return s.paint("32", text) }
func (s *session) bad(text string) string  { return s.paint("1;31", text) }

// title opens a section of the demo.
func (s *session) title(head, rest string) {
	fmt.Fprintf(s.stdout, "\n%s: %s\n", s.bold(head), rest)
}

func (s *session) say(format string, args ...any) { fmt.Fprintf(s.stdout, format+"\n", args...) }

// indent keeps the paragraphs of a text in the demo's margin.
func indent(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// wrap breaks text into lines of at most width bytes, each but the first with
// a margin.
func wrap(text string, width int, margin string) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case n+1+len(word) > width:
			b.WriteString("\n" + margin)
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += len(word)
	}
	return b.String()
}

// clip cuts text at a word, to at most width bytes.
func clip(text string, width int) string {
	if len(text) <= width {
		return text
	}
	cut := strings.LastIndexByte(text[:width], ' ')
	return strings.TrimRight(text[:max(cut, 0)], ",;:") + " …"
}
