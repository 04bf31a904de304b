// Package report shows what a sensitivity map says and what was made of it: the
// front of all budgets as a table, CSV or SVG, and one page of HTML with
// everything in it, which needs no network.
package report
