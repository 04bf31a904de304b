package report

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/smelt-go/smelt/allocate"
	"github.com/smelt-go/smelt/sensitivity"
)

// Page is what HTML shows.
type Page struct {
	Map *sensitivity.Map
	// Problem and Solution are the allocation shown as chosen; both may be nil.
	Problem  *sensitivity.Problem
	Solution *allocate.Solution
	// Front is drawn with points of other tools' models, and with further fronts:
	// of other maps, of other rules.
	Front  []Front
	Points []Point
	Lines  []Line
	// Others are further maps of the same model to compare with.
	Others []*sensitivity.Map
}

// HTML is one page, complete in itself.
func HTML(p Page) []byte {
	var b strings.Builder
	m := p.Map
	title := m.Source.Name + ": where the bits go"
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>%s</title>\n<style>%s%s</style>\n</head>\n<body>\n<main>\n", html.EscapeString(title), pageStyle, chartStyle)
	fmt.Fprintf(&b, "<header><h1>%s</h1>\n<p class=\"lead\">%s</p>\n%s</header>\n", html.EscapeString(title), lead(p), tiles(p))
	if len(p.Front) > 1 {
		section(&b, "Size against damage", "Each dot is the best allocation of its size that the candidates allow, within a proven gap. Fronts are sums of single damages; rings are measured as a whole, on a text of their own.",
			frontChart(p.Front, p.Points, chosenPoint(p), p.Lines).svg("damage over bits per weight", false))
	}
	if p.Solution != nil {
		section(&b, "The chosen recipe", "Width of every tensor. Darker is wider.", recipeChart(p).svg("bits of every tensor", false))
		section(&b, "Certificate", "", certificate(p))
		section(&b, "Where the bytes go", "", bytesChart(p).svg("bytes by class", false)+classTable(p))
	}
	for _, name := range heatFormats(m) {
		section(&b, "Damage at "+name, "KL divergence of the next token's distribution when this tensor alone is stored so. Logarithmic colours; hover for figures.", heatChart(m, name).svg("damage by class and layer at "+name, false))
	}
	if t := correlations(p); t != "" {
		section(&b, "What cheaper estimates would have said", "Spearman's rank correlation with the measured damage, over all candidates.", t)
	}
	section(&b, "Provenance", "", provenance(p))
	b.WriteString("</main>\n</body>\n</html>\n")
	return []byte(b.String())
}

func section(b *strings.Builder, title, text, body string) {
	fmt.Fprintf(b, "<section><h2>%s</h2>\n", html.EscapeString(title))
	if text != "" {
		fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(text))
	}
	fmt.Fprintf(b, "<div class=\"wide\">%s</div></section>\n", body)
}

func lead(p Page) string {
	m := p.Map
	n := 0
	for _, t := range m.Tensors {
		n += len(t.Candidates)
	}
	return fmt.Sprintf("%s parameters, %d tensors, %d candidates measured.", millions(m.Source.Parameters), len(m.Tensors), n)
}

func tiles(p Page) string {
	if p.Solution == nil {
		return ""
	}
	m := p.Map
	bytes := p.Problem.Bytes(p.Solution)
	tile := func(value, what string) string {
		return fmt.Sprintf("<div class=\"tile\"><b>%s</b><span>%s</span></div>", html.EscapeString(value), html.EscapeString(what))
	}
	return "<div class=\"tiles\">" +
		tile(fmt.Sprintf("%.3f", m.BPW(bytes)), "bits per weight") +
		tile(megabytes(bytes), fmt.Sprintf("%.1f %% of the original", 100*float64(bytes)/float64(m.Source.Bytes))) +
		tile(fmt.Sprintf("%.4f", p.Solution.Damage), "predicted damage, nats") +
		tile(fmt.Sprintf("%.4f %%", 100*p.Solution.Gap()), "proven gap") + "</div>\n"
}

func chosenPoint(p Page) *Point {
	if p.Solution == nil {
		return nil
	}
	return &Point{"chosen", p.Map.BPW(p.Problem.Bytes(p.Solution)), p.Solution.Damage}
}

func certificate(p Page) string {
	s := p.Solution
	row := func(k, v string) string {
		return fmt.Sprintf("<tr><th>%s</th><td>%s</td></tr>\n", html.EscapeString(k), html.EscapeString(v))
	}
	out := "<table class=\"facts\">\n"
	out += row("damage", fmt.Sprintf("%.6f (sum of single damages)", s.Damage))
	out += row("lower bound", fmt.Sprintf("%.6f: no choice of these candidates within the budget does less", s.LowerBound))
	out += row("gap", fmt.Sprintf("at most %.4f %%", 100*s.Gap()))
	out += row("budget", fmt.Sprintf("%s %s, of which %s are used", grouped(p.Problem.Cap), p.Problem.Count, grouped(s.Cost)))
	out += row("price", fmt.Sprintf("%.3g nats for a million more", s.Price*1e6))
	more := p.Problem.Problem
	more.Cap += 1_000_000
	if next, err := allocate.Solve(more); err == nil {
		out += row("the next million", p.Problem.Difference(s, next))
	}
	return out + "</table>\n"
}

func classTable(p Page) string {
	var b strings.Builder
	b.WriteString("<table><thead><tr><th>class</th><th>format</th><th class=\"n\">tensors</th><th class=\"n\">size</th><th class=\"n\">damage</th><th class=\"n\">of all damage</th></tr></thead><tbody>\n")
	for _, r := range p.Problem.Classes(p.Solution) {
		fmt.Fprintf(&b, "<tr><td>%s</td><td>%s</td><td class=\"n\">%d</td><td class=\"n\">%s</td><td class=\"n\">%.5f</td><td class=\"n\">%.1f %%</td></tr>\n",
			html.EscapeString(string(r.Class)), html.EscapeString(r.Format), r.Tensors, megabytes(r.Bytes), r.Damage, 100*r.Damage/max(p.Solution.Damage, 1e-300))
	}
	b.WriteString("</tbody></table>\n")
	return b.String()
}

func correlations(p Page) string {
	rows := p.Map.Correlations()
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<table><thead><tr><th>estimate</th><th class=\"n\">rank correlation</th><th class=\"n\">candidates</th></tr></thead><tbody>\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "<tr><td>%s</td><td class=\"n\">%.3f</td><td class=\"n\">%d</td></tr>\n", html.EscapeString(r.Of), r.Rho, r.N)
	}
	b.WriteString("</tbody></table>\n")
	return b.String()
}

func provenance(p Page) string {
	var b strings.Builder
	b.WriteString("<table class=\"facts\">\n")
	row := func(k, format string, args ...any) {
		fmt.Fprintf(&b, "<tr><th>%s</th><td>%s</td></tr>\n", html.EscapeString(k), html.EscapeString(fmt.Sprintf(format, args...)))
	}
	for _, m := range append([]*sensitivity.Map{p.Map}, p.Others...) {
		row("source", "%s, SHA-256 %s", m.Source.Name, m.Source.SHA256)
		row("estimator", "%s, kernels %s", m.Estimator, m.Kernel)
		if c := m.Calibration; c != nil {
			var d []string
			for k, n := range c.Domains {
				d = append(d, fmt.Sprintf("%s %d", k, n))
			}
			slices.Sort(d)
			row("text", "%d sequences of %d tokens, seed %d; %s; SHA-256 %s", c.Sequences, c.Tokens, c.Seed, strings.Join(d, ", "), c.SHA256)
		}
		if m.Base != "" {
			row("around", "recipe %s, whose damage is %.5f", m.Base, m.BaseDamage)
		}
	}
	b.WriteString("</table>\n")
	return b.String()
}

func megabytes(n int64) string {
	switch {
	case n < 1_000_000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1_000_000_000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.2f GB", float64(n)/1e9)
}

// grouped prints thousands apart.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func millions(n int64) string {
	if n >= 1_000_000 {
		return fmt.Sprintf("%.1f M", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

const pageStyle = `
:root{color-scheme:light dark}
body{margin:0;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;color:#1c2024;background:#f6f7f8}
main{max-width:940px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:28px;line-height:1.2;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:18px;margin:0 0 4px}
p{margin:0 0 12px;color:#667078;max-width:84ch}
section{background:#fff;border:1px solid #e3e6e8;border-radius:10px;padding:20px 22px;margin-top:20px}
.wide{overflow-x:auto}
svg{display:block;width:100%;min-width:640px;height:auto}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;margin-top:16px}
.tile{background:#fff;border:1px solid #e3e6e8;border-radius:10px;padding:14px 16px}
.tile b{display:block;font-size:24px;font-variant-numeric:tabular-nums;letter-spacing:-.01em}
.tile span{color:#667078;font-size:13px}
table{border-collapse:collapse;width:100%;font-size:14px;margin-top:8px}
th,td{text-align:left;padding:5px 10px 5px 0;border-bottom:1px solid #e3e6e8;vertical-align:top}
th{font-weight:600}.n{text-align:right;font-variant-numeric:tabular-nums}
.facts th{width:130px;white-space:nowrap;color:#667078;font-weight:500}
.facts td{overflow-wrap:anywhere}
@media (prefers-color-scheme:dark){
body{background:#14171a;color:#e6e9eb}section,.tile{background:#1c2024;border-color:#30363b}
p,.tile span,.facts th{color:#9aa4ab}th,td{border-color:#30363b}
main svg{--ink:#e6e9eb;--paper:#1c2024;--soft:#9aa4ab;--grid:#2c3237;--accent:#5cb8e0;--warm:#f0955a;--l1:#b596e6;--l2:#6cc795;--l3:#d9b24a;--l4:#8a949b}}
@media print{body{background:#fff}section{break-inside:avoid}}
`
