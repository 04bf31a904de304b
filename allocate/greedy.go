package allocate

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Layer is a tensor as mlx-optiq sees it: a sensitivity for every width.
type Layer struct {
	Name          string
	Sensitivities map[int]float64 // by bits; those that are missing count as 0
	Parameters    int64
}

// GreedyOptions are mlx-optiq's. Its defaults: ProtectEnds and Protect 1,
// FloorPerBlock 2, MaxLowRun 3.
type GreedyOptions struct {
	Target        float64 // bits a weight, group parameters not counted; a floor
	Bits          []int   // candidate widths
	ProtectEnds   bool
	Protect       int // blocks at either end that count a hundredfold; with ProtectEnds, 0 is all
	FloorPerBlock int
	MaxLowRun     int
}

// GreedyResult is an allocation with the figures mlx-optiq reports.
type GreedyResult struct {
	Bits      []int
	Achieved  float64 // bits a weight, group parameters not counted
	High, Low int     // layers with the most and the fewest bits
}

// Greedy is mlx-optiq's allocator (optiq/core/optimizer.py, version 0.7.7), for
// comparison: all layers at the lowest width, some of every block raised to the
// second one, then steps to the next width in the order of sensitivity gained a
// bit until the target is reached or passed, then the guard against runs of
// blocks at the lowest width. Sensitivities of the first and last blocks, of
// everything outside of blocks and of routers count a hundredfold. Whether a
// sensitivity is damage or gain is guessed from whether it falls or rises, as
// mlx-optiq does.
func Greedy(layers []Layer, o GreedyOptions) (*GreedyResult, error) {
	r := &GreedyResult{Bits: make([]int, len(layers))}
	if len(layers) == 0 {
		return r, nil
	}
	widths := slices.Sorted(slices.Values(o.Bits))
	if len(widths) == 0 {
		return nil, fmt.Errorf("allocate: greedy: no candidate widths")
	}
	g := &greedy{layers: layers, widths: widths, bits: r.Bits, block: make([]int, len(layers))}
	for i, l := range layers {
		if l.Parameters <= 0 {
			return nil, fmt.Errorf("allocate: greedy: %s has %d parameters", l.Name, l.Parameters)
		}
		g.weights += l.Parameters
		g.bits[i] = widths[0]
		g.block[i] = blockOf(l.Name)
		g.value = append(g.value, l.Sensitivities)
	}
	if len(widths) > 1 && o.FloorPerBlock > 0 {
		g.floor(o.FloorPerBlock)
	}
	g.replaceNaN()
	g.protect(o)
	for i := range layers {
		g.push(i)
	}
	for len(g.steps) > 0 && g.bpw() < o.Target {
		s := heap.Pop(&g.steps).(upgrade)
		g.bits[s.layer] = s.to
		g.push(s.layer)
	}
	if len(widths) > 1 && o.MaxLowRun > 0 {
		g.guard(o.MaxLowRun)
	}
	r.Achieved = g.bpw()
	for _, b := range g.bits {
		if b == widths[len(widths)-1] {
			r.High++
		}
		if b == widths[0] {
			r.Low++
		}
	}
	return r, nil
}

type greedy struct {
	layers  []Layer
	widths  []int
	bits    []int
	block   []int
	value   []map[int]float64 // sensitivities, NaN replaced
	boosted []map[int]float64
	weights int64
	steps   upgrades
}

var (
	blockPattern  = regexp.MustCompile(`layers\.(\d+)`)
	outputWords   = []string{"lm_head", "embed_tokens", "wte", "wpe", "output_proj", "embed_out", "head"}
	attentionEnds = []string{"q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_a", "in_proj_b", "in_proj_z",
		"out_proj", "qkv_proj", "wqkv", "Wqkv", "attn_qkv"}
)

func blockOf(name string) int {
	if m := blockPattern.FindStringSubmatch(name); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return -1
}

func (g *greedy) bpw() float64 {
	var bits int64
	for i, b := range g.bits {
		bits += int64(b) * g.layers[i].Parameters
	}
	return float64(bits) / float64(g.weights)
}

// floor raises some layers of every block, attention first.
func (g *greedy) floor(n int) {
	byBlock := map[int][]int{}
	for i := range g.layers {
		if b := g.block[i]; b >= 0 {
			byBlock[b] = append(byBlock[b], i)
		}
	}
	for _, list := range byBlock {
		g.byDamage(list)
		var attention []int
		for _, i := range list {
			name := g.layers[i].Name
			if slices.Contains(attentionEnds, name[strings.LastIndexByte(name, '.')+1:]) {
				attention = append(attention, i)
			}
		}
		reserve, want := min(1, len(attention)), min(n, 1)
		if len(attention) >= 4 {
			reserve, want = 2, n
		}
		picks := slices.Clone(attention[:min(reserve, n)])
		for _, i := range list {
			if len(picks) >= want {
				break
			}
			if !slices.Contains(picks, i) {
				picks = append(picks, i)
			}
		}
		for _, i := range picks {
			g.bits[i] = max(g.bits[i], g.widths[1])
		}
	}
}

// byDamage sorts layers by what the lowest width does, most first.
func (g *greedy) byDamage(list []int) {
	insertionSort(list, func(a, b int) bool { return g.value[a][g.widths[0]] > g.value[b][g.widths[0]] })
}

// insertionSort is Python's sort of short lists: the first run as it is, or
// turned around if it falls, then insertion by bisection. Stable, and where NaN
// makes less no order, it leaves what Python leaves.
func insertionSort(list []int, less func(a, b int) bool) {
	if len(list) < 2 {
		return
	}
	n, falls := 2, less(list[1], list[0])
	for n < len(list) && less(list[n], list[n-1]) == falls {
		n++
	}
	if falls {
		slices.Reverse(list[:n])
	}
	for ; n < len(list); n++ {
		x, lo, hi := list[n], 0, n
		for lo < hi {
			if mid := (lo + hi) / 2; less(x, list[mid]) {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		copy(list[lo+1:n+1], list[lo:n])
		list[lo] = x
	}
}

func (g *greedy) replaceNaN() {
	for i, v := range g.value {
		most, found, nan := 0.0, false, false
		for _, x := range v {
			switch {
			case x != x:
				nan = true
			case !found || x > most:
				most, found = x, true
			}
		}
		if !nan {
			continue
		}
		if !found {
			most = 1e6
		}
		fixed := map[int]float64{}
		for b, x := range v {
			if x != x {
				x = most * 10 * (float64(g.widths[len(g.widths)-1]) / float64(max(b, 1)))
			}
			fixed[b] = x
		}
		g.value[i] = fixed
	}
}

func (g *greedy) protect(o GreedyOptions) {
	var blocks []int
	for _, b := range g.block {
		if b >= 0 && !slices.Contains(blocks, b) {
			blocks = append(blocks, b)
		}
	}
	slices.Sort(blocks)
	ends := map[int]bool{}
	n := min(o.Protect, len(blocks))
	if n == 0 {
		n = len(blocks) // as there: the last 0 of a list are all of it
	}
	if o.ProtectEnds {
		for _, b := range slices.Concat(blocks[:n], blocks[len(blocks)-n:]) {
			ends[b] = true
		}
	}
	for i, l := range g.layers {
		v := g.value[i]
		parts := strings.Split(l.Name, ".")
		inBlock := slices.Contains(parts, "layers")
		if !inBlock || isOutput(parts) || isRouter(l.Name, parts) || ends[g.block[i]] && g.block[i] >= 0 && inBlock {
			v = map[int]float64{}
			for b, x := range g.value[i] {
				v[b] = x * 100
			}
		}
		g.boosted = append(g.boosted, v)
	}
}

func isOutput(parts []string) bool {
	low := make([]string, len(parts))
	for i, p := range parts {
		low[i] = strings.ToLower(p)
	}
	tail := low[max(0, len(low)-2):]
	return slices.ContainsFunc(outputWords, func(w string) bool {
		return strings.Contains(low[len(low)-1], w) || slices.Contains(tail, w)
	})
}

func isRouter(name string, parts []string) bool {
	last, before := parts[len(parts)-1], ""
	if len(parts) > 1 {
		before = parts[len(parts)-2]
	}
	return last == "gate" && before == "mlp" || last == "router" || last == "proj" && before == "router" ||
		strings.Contains(name, ".shared_experts.") || strings.Contains(name, ".shared_expert.")
}

// upgrade is a step of a layer to the next width.
type upgrade struct {
	efficiency      float64
	name            string
	from, to, layer int
	gain            float64
}

// upgrades is a heap, most efficient first, with ties as tuples of Python
// break them.
type upgrades []upgrade

func (u upgrades) Len() int      { return len(u) }
func (u upgrades) Swap(i, j int) { u[i], u[j] = u[j], u[i] }
func (u *upgrades) Push(x any)   { *u = append(*u, x.(upgrade)) }
func (u *upgrades) Pop() any {
	x := (*u)[len(*u)-1]
	*u = (*u)[:len(*u)-1]
	return x
}
func (u upgrades) Less(i, j int) bool {
	a, b := u[i], u[j]
	return cmp.Or(cmp.Compare(b.efficiency, a.efficiency), cmp.Compare(a.name, b.name), cmp.Compare(a.from, b.from),
		cmp.Compare(a.to, b.to), cmp.Compare(a.gain, b.gain)) < 0
}

func (g *greedy) push(i int) {
	at := slices.Index(g.widths, g.bits[i])
	if at < 0 || at == len(g.widths)-1 {
		return
	}
	now, next := g.boosted[i][g.bits[i]], g.boosted[i][g.widths[at+1]]
	gain := math.Abs(now - next)
	if !(gain > 0) {
		return
	}
	cost := int64(g.widths[at+1]-g.bits[i]) * g.layers[i].Parameters
	heap.Push(&g.steps, upgrade{gain / float64(cost), g.layers[i].Name, g.bits[i], g.widths[at+1], i, gain})
}

// guard raises a layer in every max-th block of runs that are too long.
func (g *greedy) guard(most int) {
	byBlock := map[int][]int{}
	var blocks []int
	for i, b := range g.block {
		if b < 0 {
			continue
		}
		if byBlock[b] == nil {
			blocks = append(blocks, b)
		}
		byBlock[b] = append(byBlock[b], i)
	}
	slices.Sort(blocks)
	atLow := func(b int) []int {
		return slices.DeleteFunc(slices.Clone(byBlock[b]), func(i int) bool { return g.bits[i] != g.widths[0] })
	}
	low := make([]bool, len(blocks))
	for k, b := range blocks {
		low[k] = 2*len(atLow(b)) > len(byBlock[b])
	}
	for start := 0; start < len(blocks); start++ {
		end := start
		for end < len(blocks) && low[end] {
			end++
		}
		if end-start > most {
			for k := start; k < end; k += most {
				if list := atLow(blocks[k]); len(list) > 0 {
					g.byDamage(list)
					g.bits[list[0]] = g.widths[1]
				}
			}
		}
		start = max(start, end)
	}
}

// StaticPrior is mlx-optiq's sensitivity without measurement, in (0, 1]: what a
// layer deserves by its place.
func StaticPrior(name string, layers int) float64 {
	low := strings.ToLower(name)
	if strings.Contains(low, "embed") || strings.Contains(low, "lm_head") {
		return 1
	}
	p := 0.30
	if m := staticBlock.FindStringSubmatch(low); m != nil && layers > 1 {
		d, err := strconv.Atoi(m[1])
		if err != nil {
			return p
		}
		switch {
		case d == 0 || d == layers-1:
			p = 0.90
		case d <= 1 || d >= layers-2:
			p = 0.65
		default:
			edge := float64(min(d, layers-1-d)) / max(float64(layers)/2, 1)
			p = 0.30 + float64(0.15*(1-edge))
		}
	}
	if strings.Contains(low, "self_attn") || strings.Contains(low, ".attn") {
		p += 0.30
	}
	if strings.Contains(low, "router") || strings.Contains(low, "gate.weight") || strings.Contains(low, ".gate.") {
		p += 0.40
	}
	if strings.Contains(low, "experts") || strings.Contains(low, "switch") {
		p -= 0.10
	}
	return max(0.05, min(p, 1))
}

var staticBlock = regexp.MustCompile(`layers?\.(\d+)\.`)

// Static is StaticPrior as a sensitivity that falls from the lowest width to 0
// at the highest.
func Static(name string, layers int, widths []int) map[int]float64 {
	lo, hi := slices.Min(widths), slices.Max(widths)
	prior := StaticPrior(name, layers)
	out := map[int]float64{}
	for _, b := range widths {
		out[b] = prior * float64(hi-b) / float64(max(hi-lo, 1))
	}
	return out
}
