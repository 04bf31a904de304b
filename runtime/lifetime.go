package runtime

// planLifetimes lists, with every instruction of a function, the slots whose
// values nothing reads afterwards, so that their storage serves again.
//
// Storage is counted at run time and views keep it alive; instr.alias extends
// lifetimes here as well, for instructions that hand storage on unseen.
// Values of nested blocks live until the instruction that owns the block
// ends.
func planLifetimes(c *code) {
	const forever = int(^uint(0) >> 1)
	last := make([]int, c.slots)
	pinned := make([]bool, c.slots)
	for s := range last {
		last[s] = -1
	}
	for s := range c.consts {
		pinned[s] = true
	}
	for _, s := range c.inputs {
		pinned[s] = true
	}
	for _, s := range c.out {
		last[s] = forever
	}
	for k := len(c.instrs) - 1; k >= 0; k-- {
		in := &c.instrs[k]
		for _, s := range in.out {
			last[s] = max(last[s], k)
			if in.alias >= 0 {
				last[in.alias] = max(last[in.alias], last[s])
			}
		}
		for _, s := range in.inner {
			last[s] = max(last[s], k)
		}
		for _, s := range in.reads {
			last[s] = max(last[s], k)
		}
	}
	for s, k := range last {
		if k >= 0 && k != forever && !pinned[s] {
			c.instrs[k].dead = append(c.instrs[k].dead, s)
		}
	}
}
