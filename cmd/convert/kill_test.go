package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// A sweep that is killed at random moments, again and again, ends with the
// bytes of one that ran through. SMELT_KILLS is how many kills there have to be,
// 4 by default; SMELT_KILL_MODEL another checkpoint.
func TestKilledSweep(t *testing.T) {
	kills := 4
	if v := os.Getenv("SMELT_KILLS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		kills = n
	}
	model := os.Getenv("SMELT_KILL_MODEL")
	if model == "" {
		model = fixture(t, "tiny-gemma3-target")
	}
	bin, dir := binary(t), t.TempDir()
	sweep := func(out string) *exec.Cmd {
		return exec.Command(bin, "sensitivity", model, "-o", filepath.Join(dir, out), "--sequences", "4", "--tokens", "32", "--noise",
			"--batch-tokens", "300", "--bits", "3,4,5,6,8", "--group-size", "32,64")
	}
	start := time.Now()
	if out, err := sweep("whole.json").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	took := time.Since(start)
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	whole := read("whole.json")
	rng := rand.New(rand.NewPCG(uint64(start.UnixNano()), 1))
	killed, resumed, maps := 0, 0, 0
	for killed < kills {
		out, last := "map"+strconv.Itoa(maps)+".json", int64(-1)
		for tries := 0; ; tries++ {
			if tries > 60 {
				t.Fatal("the sweep makes no headway between kills")
			}
			cmd := sweep(out)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			// Half of the time that all of it takes is enough for some tensors.
			timer := time.NewTimer(time.Duration(float64(took) * (0.05 + 0.6*rng.Float64())))
			var err error
			select {
			case err = <-done:
			case <-timer.C:
				if cmd.Process.Kill() == nil {
					killed++
				}
				err = <-done
			}
			timer.Stop()
			if st, e := os.Stat(filepath.Join(dir, out+".partial")); e == nil {
				if last > 0 && st.Size() > last {
					resumed++
				}
				last = st.Size()
			}
			if err == nil {
				break
			}
			if _, e := os.Stat(filepath.Join(dir, out)); e == nil {
				break // killed after the map was there
			}
		}
		if !bytes.Equal(read(out), whole) {
			t.Errorf("after %d kills: another map", killed)
		}
		maps++
	}
	if resumed == 0 && kills > 1 {
		t.Error("no run went on where another one was")
	}
	t.Logf("%d maps, %d kills, %d of them with headway before; a whole run takes %v", maps, killed, resumed, took)
}
