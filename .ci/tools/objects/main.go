// Command objects checks Kubernetes objects, which it reads from standard input:
//
//   - A field that the type of the object does not have is an error.
//   - Each selector selects something, and each named port exists.
//   - With -like, the pods are those of the manifests in a directory.
//
// With -config it also writes the configuration of the proxy to a file.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	like := flag.String("like", "", "the directory of manifests with the same pods")
	config := flag.String("config", "", "the file to write the configuration to")
	flag.Parse()
	if err := run(*like, *config); err != nil {
		fmt.Fprintln(os.Stderr, "objects:", err)
		os.Exit(1)
	}
}

func run(like, config string) error {
	all, err := read(os.Stdin)
	if err != nil {
		return err
	}
	if err := connected(all); err != nil {
		return err
	}
	if config != "" {
		if err := os.WriteFile(config, []byte(configuration(all)), 0o600); err != nil {
			return err
		}
	}
	if like != "" {
		return alike(all, like)
	}
	return nil
}

// read decodes all objects strictly.
func read(r io.Reader) (all []runtime.Object, err error) {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), addOperator(known)); err != nil {
		return nil, err
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, known, known, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewYAMLReader(bufio.NewReader(r))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if isEmpty(string(text)) {
			continue
		}
		o, _, err := strict.Decode(text, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w, in:\n%s", err, text)
		}
		all = append(all, o)
	}
	if len(all) == 0 {
		return nil, errors.New("no objects")
	}
	return all, nil
}

// isEmpty reports whether a document has only comments.
func isEmpty(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' && line != "---" {
			return false
		}
	}
	return true
}

// configuration returns the proxy's configuration, from a Secret or a ConfigMap.
func configuration(all []runtime.Object) (text string) {
	for _, o := range all {
		switch o := o.(type) {
		case *core.Secret:
			text += o.StringData["config.yaml"]
		case *core.ConfigMap:
			text += o.Data["config.yaml"]
		}
	}
	return text
}

// alike compares the pods with those of manifests. Both may get the configuration from another
// object, name the image differently, and have further labels.
func alike(all []runtime.Object, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "[n-s]*.yaml")) // not kustomization.yaml
	if err != nil {
		return err
	}
	var others []runtime.Object
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		more, err := read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		others = append(others, more...)
	}
	for kind, got := range podSpecs(all) {
		if diff := cmp.Diff(podSpecs(others)[kind], got); diff != "" {
			return fmt.Errorf("%s is not as in %s (-manifest +chart):\n%s", kind, dir, diff)
		}
	}
	return nil
}

// podSpecs returns the specifications of pods by the kind of their owner, without what may differ.
func podSpecs(all []runtime.Object) map[string]core.PodSpec {
	specs := map[string]core.PodSpec{}
	for _, o := range all {
		pod := template(o)
		if pod == nil {
			continue
		}
		spec := *pod.Spec.DeepCopy()
		spec.Volumes = nil
		for i := range spec.Containers {
			spec.Containers[i].Image, spec.Containers[i].ImagePullPolicy = "", ""
		}
		for i := range spec.TopologySpreadConstraints {
			spec.TopologySpreadConstraints[i].LabelSelector = nil
		}
		specs[o.GetObjectKind().GroupVersionKind().Kind] = spec
	}
	return specs
}

// template returns the pods that an object creates, or nil.
func template(o runtime.Object) *core.PodTemplateSpec {
	switch o := o.(type) {
	case *apps.StatefulSet:
		return &o.Spec.Template
	case *apps.Deployment:
		return &o.Spec.Template
	}
	return nil
}

// monitoring is the group of the Prometheus operator, whose types are not in k8s.io/api.
var monitoring = schema.GroupVersion{Group: "monitoring.coreos.com", Version: "v1"}
