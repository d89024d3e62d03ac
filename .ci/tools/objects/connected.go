package main

import (
	"fmt"
	"slices"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// connected checks names, selectors and ports over all objects.
func connected(all []runtime.Object) error {
	for _, o := range all {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		where := o.GetObjectKind().GroupVersionKind().Kind + " " + m.GetName()
		if bad := validation.IsDNS1123Subdomain(m.GetName()); bad != nil {
			return fmt.Errorf("%s: name: %s", where, bad)
		}
		if err := check(o, all); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	return nil
}

func check(o runtime.Object, all []runtime.Object) error {
	switch o := o.(type) {
	case *apps.StatefulSet:
		return selects(o.Spec.Selector, o.Spec.Template.Labels)
	case *apps.Deployment:
		return selects(o.Spec.Selector, o.Spec.Template.Labels)
	case *core.Service:
		return checkService(o, all)
	case *policy.PodDisruptionBudget:
		_, err := selected(o.Spec.Selector, all)
		return err
	case *networking.NetworkPolicy:
		return checkPolicy(o, all)
	case *ServiceMonitor:
		return checkMonitor(o, all)
	case *PrometheusRule:
		if len(o.Spec.Groups) == 0 || len(o.Spec.Groups[0].Rules) == 0 {
			return fmt.Errorf("no rules")
		}
	case *core.ConfigMap:
		if len(o.Data) == 0 {
			return fmt.Errorf("no data")
		}
	}
	return nil
}

// selects fails if the selector does not select the labels.
func selects(s *metav1.LabelSelector, l map[string]string) error {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return err
	}
	if selector.Empty() || !selector.Matches(labels.Set(l)) {
		return fmt.Errorf("selector %q does not select %v", selector, l)
	}
	return nil
}

// selected returns the pods that a selector selects. None is an error.
func selected(s *metav1.LabelSelector, all []runtime.Object) (pods []*core.PodTemplateSpec, err error) {
	for _, o := range all {
		if pod := template(o); pod != nil && selects(s, pod.Labels) == nil {
			pods = append(pods, pod)
		}
	}
	if len(pods) == 0 {
		return nil, fmt.Errorf("selector %q selects no pods", metav1.FormatLabelSelector(s))
	}
	return pods, nil
}

func checkService(s *core.Service, all []runtime.Object) error {
	pods, err := selected(&metav1.LabelSelector{MatchLabels: s.Spec.Selector}, all)
	if err != nil {
		return err
	}
	for _, port := range s.Spec.Ports {
		for _, pod := range pods {
			named := func(p core.ContainerPort) bool { return p.Name == port.TargetPort.StrVal }
			if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, named) {
				return fmt.Errorf("no container has the port %q", port.TargetPort.StrVal)
			}
		}
	}
	return nil
}

func checkPolicy(p *networking.NetworkPolicy, all []runtime.Object) error {
	for _, in := range p.Spec.Ingress {
		if len(in.From) == 0 || len(in.Ports) == 0 {
			return fmt.Errorf("an ingress rule permits everything")
		}
	}
	for _, out := range p.Spec.Egress {
		if len(out.To) == 0 {
			return fmt.Errorf("an egress rule permits everything")
		}
	}
	if len(p.Spec.PodSelector.MatchLabels) == 0 { // all pods of a namespace of clients
		return nil
	}
	_, err := selected(&p.Spec.PodSelector, all)
	return err
}

func checkMonitor(m *ServiceMonitor, all []runtime.Object) error {
	for _, o := range all {
		s, ok := o.(*core.Service)
		if !ok || selects(&m.Spec.Selector, s.Labels) != nil {
			continue
		}
		for _, e := range m.Spec.Endpoints {
			if !slices.ContainsFunc(s.Spec.Ports, func(p core.ServicePort) bool { return p.Name == e.Port }) {
				return fmt.Errorf("the Service %s has no port %q", s.Name, e.Port)
			}
		}
		if len(m.Spec.Endpoints) > 0 {
			return nil
		}
	}
	return fmt.Errorf("no Service, or no endpoint")
}
