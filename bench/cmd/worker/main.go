// Command worker measures smelt for bench/compare. It reads one JSON request a
// line and answers with one JSON object a line, so that a driver can take
// turns between this process and those of other tools:
//
//	{"op":"open","bundle":"gemma.bundle"}
//	{"op":"prefill","ids":[2,818,5279]}     → {"seconds":0.01,"token":529}
//	{"op":"decode","ids":[529,7001]}        → {"seconds":0.02,"token":563,"mallocs":0}
//	{"op":"gemv","m":8192,"k":4096,"reps":9} → {"seconds":0.0011}
//
// An error is {"error":"..."}; the worker goes on. It ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// request is one line of input; which fields count depends on Op.
type request struct {
	Op      string  `json:"op"`
	Bundle  string  `json:"bundle"`
	Dir     string  `json:"dir"`
	File    string  `json:"file"`
	Text    string  `json:"text"`
	IDs     []int32 `json:"ids"`
	Threads int     `json:"threads"`
	M       int     `json:"m"`
	N       int     `json:"n"`
	K       int     `json:"k"`
	Reps    int     `json:"reps"`
	Every   bool    `json:"every"`
	Bytes   int64   `json:"bytes"`
}

type answer map[string]any

func main() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	var w worker
	for in.Scan() {
		var r request
		var a answer
		err := json.Unmarshal(in.Bytes(), &r)
		if err == nil {
			a, err = w.do(&r)
		}
		if err != nil {
			a = answer{"error": err.Error()}
		} else if a == nil {
			a = answer{}
		}
		if err := out.Encode(a); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
	}
}

func (w *worker) do(r *request) (answer, error) {
	switch r.Op {
	case "about":
		return about(), nil
	case "open":
		return w.open(r)
	case "close":
		return nil, w.close()
	case "prefill":
		return w.prefill(r)
	case "decode":
		return w.decode(r)
	case "encode":
		return encode(r)
	case "profile":
		return nil, w.profile(r.File)
	case "bandwidth":
		return bandwidth(r)
	case "gemv":
		return gemv(r)
	case "gemm":
		return gemm(r)
	case "synthetic":
		return nil, synthetic(r.Dir, r.Bytes)
	}
	return nil, fmt.Errorf("worker: unknown op %q", r.Op)
}
