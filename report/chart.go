package report

import (
	"fmt"
	"html"
	"strings"
)

// canvas collects SVG elements.
type canvas struct {
	b             strings.Builder
	width, height float64
}

func (c *canvas) add(format string, args ...any) {
	fmt.Fprintf(&c.b, format+"\n", args...)
}

func (c *canvas) text(x, y float64, class, anchor, s string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>`, x, y, class, anchor, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	c.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// svg is the element, with the style inside if it has to stand alone.
func (c *canvas) svg(label string, alone bool) string {
	style := ""
	if alone {
		style = "<style>svg{background:#fff;color:#1c2024}" + chartStyle + "</style>\n"
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s" font-family="system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif">`+"\n%s%s</svg>\n",
		c.width, c.height, html.EscapeString(label), style, c.b.String())
}

// chartStyle colours charts; the page overrides the variables in dark mode.
const chartStyle = `
svg{--ink:#1c2024;--paper:#fff;--soft:#5b656d;--grid:#e6e9eb;--accent:#0b6e99;--warm:#b8500f;--l1:#7b4fb5;--l2:#2f8f5b;--l3:#a3790a;--l4:#8a949b}
svg text{font-size:12px;fill:var(--ink)}
svg .soft{fill:var(--soft)} svg .small{font-size:11px;fill:var(--soft)} svg .strong{font-weight:600}
svg .grid{stroke:var(--grid);stroke-width:1} svg .axis{stroke:var(--soft);stroke-width:1}
svg .front{fill:none;stroke:var(--accent);stroke-width:2.5;stroke-linejoin:round}
svg .line{fill:none;stroke-width:1.6;stroke-linejoin:round}
svg .l1{stroke:var(--l1)} svg .l2{stroke:var(--l2)} svg .l3{stroke:var(--l3)} svg .l4{stroke:var(--l4)}
svg .l2{stroke-dasharray:6 3} svg .l3{stroke-dasharray:2 3} svg .l4{stroke-dasharray:8 3 2 3}
svg .dot{fill:var(--accent)} svg .peer{fill:var(--paper);stroke:var(--warm);stroke-width:1.8}
svg .leader{stroke:var(--warm);stroke-width:.8;opacity:.7}
svg .peername{font-size:11px;fill:var(--warm)} svg .peername,svg .strong{paint-order:stroke;stroke:var(--paper);stroke-width:3.5px;stroke-linejoin:round}
svg .chosen{fill:var(--warm);stroke:var(--paper);stroke-width:2}
`
