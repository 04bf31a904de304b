package mil

// Cond appends a cond op: its outputs are those of then where the bool scalar
// pred holds and those of els otherwise. Both callbacks append ops and must
// return values of the same number and types.
func (b *Builder) Cond(name string, pred *Value, then, els func() []*Value) []*Value {
	blocks := []*Block{
		b.block(nil, func([]*Value) []*Value { return then() }),
		b.block(nil, func([]*Value) []*Value { return els() }),
	}
	vs := b.op("cond", name, Args{"pred": pred}, blocks)
	if b.err != nil {
		return dummies()
	}
	return vs
}

// While appends a while_loop op: starting from init, body maps the loop
// variables to their next values as long as cond returns true.
func (b *Builder) While(name string, init []*Value, cond func([]*Value) *Value, body func([]*Value) []*Value) []*Value {
	vars := func(suffix string) []*Value {
		if b.err != nil {
			return dummies()[:len(init)]
		}
		vs := make([]*Value, len(init))
		for i, v := range init {
			vs[i] = &Value{Name: b.names.Unique(v.Name + suffix), Type: v.Type}
		}
		return vs
	}
	blocks := []*Block{
		b.block(vars("_cond"), func(v []*Value) []*Value { return []*Value{cond(v)} }),
		b.block(vars("_body"), body),
	}
	vs := b.op("while_loop", name, Args{"loop_vars": init}, blocks)
	if b.err != nil {
		return dummies()
	}
	return vs
}

func (b *Builder) block(inputs []*Value, f func([]*Value) []*Value) *Block {
	blk := &Block{Inputs: inputs}
	if b.err != nil {
		return blk
	}
	b.push(blk)
	blk.Outputs = f(inputs)
	b.pop()
	return blk
}
