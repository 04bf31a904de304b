package speculate

// SuffixTrie remembers every run of up to Depth tokens of the sequences
// inserted into it, across sequences, with counts. It proposes the most
// frequent continuation of the longest suffix it knows. (CoreML-LLM's suffix
// tree.)
type SuffixTrie struct {
	Depth     int // of inserted paths
	MaxSuffix int // tokens of context that are looked up

	root trieNode
	tick int
}

type trieNode struct {
	children map[int32]*trieNode
	count    int
	touched  int // the tick of the last visit
}

// Insert adds a path for every start position of the sequence.
func (t *SuffixTrie) Insert(sequence []int32) {
	for i := range sequence {
		node := &t.root
		for _, token := range sequence[i:min(i+t.Depth, len(sequence))] {
			next := node.children[token]
			if next == nil {
				if node.children == nil {
					node.children = map[int32]*trieNode{}
				}
				next = &trieNode{}
				node.children[token] = next
			}
			next.count++
			t.touch(next)
			node = next
		}
	}
}

func (t *SuffixTrie) touch(n *trieNode) {
	t.tick++
	n.touched = t.tick
}

// Draft proposes up to gamma tokens to follow context. Nodes that a lookup
// passes count as touched, even if it fails later: among children of equal
// count the last touched one wins.
func (t *SuffixTrie) Draft(context []int32, gamma int) []int32 {
	for n := min(len(context), t.MaxSuffix); n >= 1; n-- {
		node := &t.root
		for _, token := range context[len(context)-n:] {
			if node = node.children[token]; node == nil {
				break
			}
			t.touch(node)
		}
		if node == nil {
			continue
		}
		var out []int32
		for len(out) < gamma {
			token, next := node.best()
			if next == nil {
				break
			}
			out = append(out, token)
			node = next
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// best is the child with the largest count, then the last touched: no two
// nodes have the same tick, so the order of the map does not matter.
func (n *trieNode) best() (int32, *trieNode) {
	var token int32
	var best *trieNode
	for k, c := range n.children {
		if best == nil || c.count > best.count || c.count == best.count && c.touched > best.touched {
			token, best = k, c
		}
	}
	return token, best
}
