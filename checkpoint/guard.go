package checkpoint

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Guard calls access, which may use bytes from [Raw], and returns its error. If
// a mapped file was truncated and access touches a page that is gone, Guard
// returns an error where the program would otherwise crash. It covers the
// calling goroutine only, not those that access starts.
func Guard(access func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		// Only memory faults carry an address; other panics are bugs and go on.
		if _, ok := r.(interface {
			runtime.Error
			Addr() uintptr
		}); !ok {
			panic(r)
		}
		err = fmt.Errorf("checkpoint: mapped file is shorter than when it was opened (truncated meanwhile?): %v", r)
	}()
	return access()
}
