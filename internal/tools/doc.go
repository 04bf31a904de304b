// Package tools is the home of development-time generators. They have their own
// module so that their dependencies stay out of the toolchain's.
package tools
