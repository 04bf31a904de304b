package parity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/smelt-go/smelt/chunking"
	"github.com/smelt-go/smelt/conversion"
)

// manifestGate compares the bundle's files with its manifest.
func manifestGate() Gate {
	return Gate{
		ID:     "manifest",
		Proves: "every file that the manifest lists is there, with its size and SHA-256",
		Skip: func(s *Subject) string {
			if m, err := chunking.ReadManifest(s.Dir); m == nil && err == nil {
				return "the bundle has no manifest"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			m, err := chunking.ReadManifest(s.Dir)
			if err == nil {
				res.note("files", float64(len(m.Files)))
				err = m.Check(ctx, s.Dir, true)
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				res.fail("%v", err)
			}
			return res, nil
		},
	}
}

// sourceGate checks that all of a bundle comes from one conversion of the
// checkpoint that is given.
func sourceGate() Gate {
	return Gate{
		ID:     "source",
		Proves: "every chunk bears the hash of one checkpoint, the one given, and of one conversion, and the contract is as it was then",
		Skip: func(s *Subject) string {
			if s.Contract.Source.SHA256 == "" {
				return "the contract does not say what was converted"
			}
			return ""
		},
		Run: func(ctx context.Context, s *Subject) (*Result, error) {
			res := &Result{Status: Pass}
			pkgs, err := s.packages()
			if err != nil {
				return nil, err
			}
			src := s.Contract.Source
			for i, p := range pkgs {
				name := s.Contract.Chunks[i].Name
				for _, k := range []struct{ key, want, what string }{
					{chunking.MetaSource, src.SHA256, "another checkpoint"},
					{chunking.MetaConversion, src.Conversion, "another conversion"},
				} {
					switch got := p.Metadata.UserDefined[k.key]; got {
					case k.want:
					case "":
						res.symptom("no stamp")
						res.fail("%s has no %s in its metadata (rewritten by a tool that drops them?)", name, k.key)
					default:
						res.symptom("other stamp")
						res.fail("%s comes from %s: its %s is %.12s…, the contract's %.12s…", name, k.what, k.key, got, k.want)
					}
					if res.Status == Fail && res.Finding == nil {
						res.Finding = &Finding{Chunk: name, Layer: s.Contract.Chunks[i].First, Position: -1}
					}
				}
			}
			if edited, err := editedSince(s.Contract); err != nil {
				return nil, err
			} else if edited {
				res.symptom("contract edited")
				res.fail("%s is not what it was when the chunks were written (edited by hand?)", chunking.ContractFile)
			}
			res.note("chunks", float64(len(pkgs)))
			if s.opts.Checkpoint == "" {
				return res, nil
			}
			c, err := conversion.OpenSource(s.opts.Checkpoint)
			if err != nil {
				res.Reason = join(res.Reason, fmt.Sprintf("the checkpoint was not hashed: %v", err))
				return res, nil
			}
			defer c.Close()
			sum, err := c.Fingerprint(ctx)
			if err != nil {
				return nil, err
			}
			if sum != src.SHA256 {
				res.symptom("other checkpoint")
				res.fail("the bundle was converted from a checkpoint with hash %.12s…, %s has %.12s… (another fine-tune?)", src.SHA256, s.opts.Checkpoint, sum)
			}
			return res, nil
		},
	}
}

// editedSince reports whether a contract is another one than its own hash
// says.
func editedSince(c *chunking.Contract) (bool, error) {
	if c.Source.Conversion == "" {
		return false, nil
	}
	was := *c
	was.Source.Conversion = ""
	data, err := was.Marshal()
	if err != nil {
		return false, err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]) != c.Source.Conversion, nil
}
