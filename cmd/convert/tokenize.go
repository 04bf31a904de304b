package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/tokenizer"
)

func (s *session) tokenizeCommand() *cobra.Command {
	var (
		jsonl, decode, asJSON bool
		special               bool
	)
	cmd := &cobra.Command{
		Use:   "tokenize DIR|tokenizer.json [TEXT]",
		Short: "Turn text into token ids and back",
		Long: `Encodes TEXT, or standard input, with a tokenizer.json, that of a Hugging Face
directory or that of a bundle. With --decode the text is token ids, separated
by blanks or commas, and the result is text.

--special adds what the tokenizer adds around a text, such as <bos>; when
decoding it shows special tokens.

--jsonl reads a line {"t": "text"} at a time and prints {"ids": [1, 2]};
with --decode the other way round.`,
		Example: s.examples(
			`tokenize ./gemma-3-270m "Hello world"`,
			`tokenize ./gemma-3-270m --special "Hello world"`,
			"tokenize gemma.bundle --decode 2,9259,1902",
			"tokenize tokenizer.json --jsonl < texts.jsonl > ids.jsonl"),
		Args: takes(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if jsonl && len(args) == 2 {
				return usagef("tokenize: --jsonl reads standard input, not an argument")
			}
			if jsonl && asJSON {
				return usagef("tokenize: give either --json or --jsonl")
			}
			tok, err := tokenizer.Load(tokenizerPath(args[0]))
			if err != nil {
				return err
			}
			t := &translator{tok: tok, special: special, decode: decode}
			if jsonl {
				return t.lines(s.stdin, s.stdout)
			}
			var text string
			if len(args) == 2 {
				text = args[1]
			} else {
				data, err := io.ReadAll(s.stdin)
				if err != nil {
					return fmt.Errorf("tokenize: standard input: %w", err)
				}
				text = string(data)
			}
			if decode {
				ids, err := parseIDs(text)
				if err != nil {
					return fmt.Errorf("tokenize --decode: %w", err)
				}
				if asJSON {
					return s.printJSON(tokenLine{Text: ptr(t.toText(ids))})
				}
				_, err = fmt.Fprintln(s.stdout, t.toText(ids))
				return err
			}
			ids, err := t.toIDs(text)
			if err != nil {
				return err
			}
			if asJSON {
				return s.printJSON(tokenLine{IDs: ids})
			}
			_, err = fmt.Fprintln(s.stdout, strings.Trim(fmt.Sprint(ids), "[]"))
			return err
		},
	}
	f := cmd.Flags()
	f.BoolVar(&jsonl, "jsonl", false, `read {"t": …} lines, print {"ids": […]} lines`)
	f.BoolVar(&decode, "decode", false, "turn ids into text")
	f.BoolVar(&special, "special", false, "add (encode) or show (decode) special tokens")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// tokenizerPath finds the tokenizer.json of a bundle, too.
func tokenizerPath(path string) string {
	if _, err := os.Stat(filepath.Join(path, chunking.ContractFile)); err == nil {
		return filepath.Join(path, chunking.HFDir)
	}
	return path
}

// translator applies a tokenizer to lines.
type translator struct {
	tok             *tokenizer.Tokenizer
	special, decode bool
}

// tokenLine is one line of --jsonl.
type tokenLine struct {
	Text *string `json:"t,omitempty"`
	IDs  []int32 `json:"ids,omitzero"`
}

func ptr[T any](v T) *T { return &v }

func (t *translator) toIDs(text string) ([]int32, error) {
	ids, err := t.tok.Encode(text, tokenizer.EncodeOptions{AddSpecial: t.special})
	if ids == nil {
		ids = []int32{}
	}
	return ids, err
}

func (t *translator) toText(ids []int32) string {
	return t.tok.Decode(ids, tokenizer.DecodeOptions{SkipSpecial: !t.special})
}

// lines translates JSON lines. A wrong line is an error with its number.
func (t *translator) lines(in io.Reader, out io.Writer) error {
	r := bufio.NewReaderSize(in, 1<<16)
	w := bufio.NewWriter(out)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for n := 1; ; n++ {
		line, readErr := r.ReadBytes('\n')
		if readErr != nil && readErr != io.EOF {
			return fmt.Errorf("tokenize: standard input: %w", readErr)
		}
		if len(bytes.TrimSpace(line)) > 0 {
			res, err := t.line(line)
			if err == nil {
				err = enc.Encode(res)
			}
			if err != nil {
				w.Flush()
				return fmt.Errorf("tokenize: line %d: %w", n, err)
			}
		}
		if readErr == io.EOF {
			return w.Flush()
		}
	}
}

func (t *translator) line(data []byte) (tokenLine, error) {
	var l tokenLine
	if err := json.Unmarshal(data, &l); err != nil {
		return l, err
	}
	if t.decode {
		if l.IDs == nil {
			return l, fmt.Errorf(`want {"ids": [...]}`)
		}
		return tokenLine{Text: ptr(t.toText(l.IDs))}, nil
	}
	if l.Text == nil {
		return l, fmt.Errorf(`want {"t": "..."}`)
	}
	ids, err := t.toIDs(*l.Text)
	return tokenLine{IDs: ids}, err
}
