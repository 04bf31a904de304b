#!/bin/sh
# Writes the assembly and its declarations.
set -e
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../tools/kernelgen"
go build -o "$here/.kernelgen" .
cd "$here"
for group in affine cast dot exact outer convert elementwise feedback packed panel; do
	for isa in avx2 avx512; do
		KERNEL_GROUP=$group KERNEL_ISA=$isa ./.kernelgen -pkg kernel \
			-out "${group}_${isa}_amd64.s" -stubs "${group}_${isa}_amd64.go"
	done
done
rm .kernelgen
