package runtime

import (
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A task is the body of a parallel loop. A struct that is kept between runs
// makes one without allocating.
type task interface {
	run(lo, hi int)
}

// funcTask is a task made of a closure.
type funcTask func(lo, hi int)

func (f funcTask) run(lo, hi int) { f(lo, hi) }

// pool runs loops over at most n goroutines: the caller's and helpers that
// all programs of the process share.
type pool struct{ n int }

func newPool(n int) *pool {
	if n <= 0 {
		n = goruntime.GOMAXPROCS(0)
	}
	return &pool{n}
}

// partsPerThread allows for threads that the system interrupts.
const partsPerThread = 4

// maxLanes bounds the threads that have a range of their own.
const maxLanes = 32

func (p *pool) run(n, grain int, body func(lo, hi int)) { p.do(n, grain, funcTask(body)) }

// do splits [0,n) into ranges of at least grain and runs t on each.
func (p *pool) do(n, grain int, t task) {
	parts := min(p.n*partsPerThread, n/max(grain, 1))
	if p.n == 1 || parts <= 1 {
		if n > 0 {
			t.run(0, n)
		}
		return
	}
	j := jobs.Get().(*job)
	j.task, j.n, j.parts = t, n, parts
	j.split(min(p.n, parts, maxLanes))
	j.state.Store(jobRunning)
	j.left.Store(int32(parts))
	wake := min(p.n, parts) - 1
	j.refs.Store(int32(1 + wake))
	startHelpers(p.n - 1)
	for range wake {
		select {
		case helpers.queue <- j:
		default: // enough is waiting already
			j.refs.Add(-1)
		}
	}
	j.work()
	j.wait()
	failed := j.failed
	j.failed, j.task = nil, nil
	j.release()
	if failed != nil {
		panic(failed)
	}
}

// job is one loop under way. Its parts are dealt out in lanes, one a thread:
// a thread walks its own lane in order, so that it reads memory in order, and
// then helps with what is left of the others.
type job struct {
	task     task
	n, parts int
	lanes    [maxLanes]lane
	used     int          // lanes
	joined   atomic.Int32 // threads so far
	left     atomic.Int32 // parts not finished
	refs     atomic.Int32 // goroutines that may still look at the job
	state    atomic.Int32
	done     chan struct{} // wakes a caller that has gone to sleep
	mu       sync.Mutex
	failed   any
}

// lane is a range of parts. Each has a cache line of its own.
type lane struct {
	next atomic.Int32 // the next part to take
	end  int32
	_    [56]byte
}

func (j *job) split(lanes int) {
	j.used = lanes
	j.joined.Store(0)
	for i := range lanes {
		j.lanes[i].next.Store(int32(i * j.parts / lanes))
		j.lanes[i].end = int32((i + 1) * j.parts / lanes)
	}
}

var jobs = sync.Pool{New: func() any { return &job{done: make(chan struct{}, 1)} }}

func (j *job) release() {
	if j.refs.Add(-1) == 0 {
		jobs.Put(j)
	}
}

func (j *job) work() {
	first := int(j.joined.Add(1)) - 1
	for k := range j.used {
		l := &j.lanes[(first+k)%j.used]
		for {
			i := l.next.Add(1) - 1
			if i >= l.end {
				break
			}
			j.part(int(i))
			if j.left.Add(-1) == 0 && j.state.Swap(jobDone) == jobAwaited {
				j.done <- struct{}{}
			}
		}
	}
}

// States of a job.
const (
	jobRunning int32 = iota
	jobAwaited       // the caller sleeps until done
	jobDone
)

// wait returns when all parts are finished. The last one is mostly about to
// be: looking for a while is shorter than going to sleep and being woken.
func (j *job) wait() {
	start := time.Now()
	for k := 1; j.state.Load() != jobDone; k++ {
		if k%64 == 0 && time.Since(start) > linger {
			if j.state.CompareAndSwap(jobRunning, jobAwaited) {
				<-j.done
			}
			return
		}
	}
}

// part runs one part and keeps a panic for the goroutine that waits.
func (j *job) part(i int) {
	defer func() {
		if r := recover(); r != nil {
			j.mu.Lock()
			j.failed = r
			j.mu.Unlock()
		}
	}()
	j.task.run(i*j.n/j.parts, (i+1)*j.n/j.parts)
}

// helpers are started when first needed and then wait for jobs for good.
var helpers = struct {
	mu    sync.Mutex
	count atomic.Int32
	queue chan *job
}{queue: make(chan *job, 64)}

func startHelpers(n int) {
	if int(helpers.count.Load()) >= n {
		return
	}
	helpers.mu.Lock()
	defer helpers.mu.Unlock()
	for int(helpers.count.Load()) < n {
		helpers.count.Add(1)
		go help()
	}
}

// linger is how long an idle helper keeps looking for the next loop before it
// sleeps: the loops of a decode step follow each other within microseconds,
// and waking a thread takes longer.
const linger = 20 * time.Microsecond

func help() {
	for {
		j := <-helpers.queue
		for j != nil {
			j.work()
			j.release()
			j = pollJob()
		}
	}
}

func pollJob() *job {
	start := time.Now()
	for k := 1; ; k++ {
		select {
		case j := <-helpers.queue:
			return j
		default:
		}
		if k%64 == 0 && time.Since(start) > linger {
			return nil
		}
	}
}
