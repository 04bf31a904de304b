// Command protogen compiles .proto files to Go without protoc.
//
//	protogen -root DIR -import PREFIX -out DIR FILE…
//
// FILEs lie in root and are compiled as PREFIX/FILE, the name under which they
// import each other and register.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	root := flag.String("root", ".", "directory of the .proto files")
	prefix := flag.String("import", "", "import path prefix of the files")
	out := flag.String("out", ".", "directory for the generated files")
	flag.Parse()
	if err := generate(*root, *prefix, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func generate(root, prefix, out string, files []string) error {
	if len(files) == 0 {
		return fmt.Errorf("no .proto files given")
	}
	names := make([]string, len(files))
	sources := map[string]string{}
	for i, f := range files {
		text, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			return err
		}
		names[i] = path.Join(prefix, f)
		sources[names[i]] = string(text)
	}
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(sources)},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: names,
		Parameter:      proto.String("paths=source_relative"),
	}
	seen := map[string]bool{}
	for _, f := range compiled {
		// The plugin protocol wants imports before the files that use them.
		for i := range f.Imports().Len() {
			dep := f.Imports().Get(i)
			if !seen[dep.Path()] {
				return fmt.Errorf("%s: imports %s: list it earlier on the command line", f.Path(), dep.Path())
			}
		}
		seen[f.Path()] = true
		request.ProtoFile = append(request.ProtoFile, descriptor(protoutil.ProtoFromFileDescriptor(f)))
	}
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		return err
	}
	for _, f := range plugin.Files {
		if f.Generate {
			internal_gengo.GenerateFile(plugin, f)
		}
	}
	response := plugin.Response()
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		target := filepath.Join(out, strings.TrimPrefix(f.GetName(), prefix+"/"))
		text := []byte(f.GetContent())
		if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, text) {
			continue
		}
		if err := os.WriteFile(target, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// descriptor passes the message through its wire form, which drops the
// compiler's private option representation.
func descriptor(fd *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	b, err := proto.Marshal(fd)
	if err != nil {
		return fd
	}
	clean := &descriptorpb.FileDescriptorProto{}
	if err := proto.Unmarshal(b, clean); err != nil {
		return fd
	}
	return clean
}
