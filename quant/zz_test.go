package quant
import ("testing";"fmt";"io";"os";"time";"github.com/smelt-go/smelt/checkpoint")
type rowsOf struct{ checkpoint.Tensor; shape []int }
func (r rowsOf) Shape() []int { return r.shape }
func TestZZ(t *testing.T){
 f,_:=checkpoint.OpenFile(os.Getenv("ZZ"))
 for _,n:=range []string{"model.embed_tokens.weight","model.layers.3.mlp.down_proj.weight","model.layers.9.self_attn.q_proj.weight"}{
  x,_:=f.Tensor(n); sh:=x.Shape(); r:=min(sh[0],512); y:=rowsOf{x,[]int{r,sh[1]}}
  for _,b:=range []int{2,3,4,5,6,8}{
   var m [2]float64; var d [2]time.Duration
   for i,me:=range []Method{RTN,Refit}{ e,_:=Encode(Affine{b,64,RoundCPU},y,"x",Options{Method:me,Workers:1}); s:=time.Now(); e.Parts[0].WriteTo(io.Discard); d[i]=time.Since(s); m[i]=e.Stats.RelativeMSE()}
   fmt.Printf("%s %d %.4e %.4e %.1f%% %.1f ns/elem\n",n,b,m[0],m[1],100*(1-m[1]/m[0]), float64(d[1].Nanoseconds())/float64(r*sh[1]))
  }}
}
