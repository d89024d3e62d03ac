package main

import (
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A ServiceMonitor has the fields of the Prometheus operator's type that the chart uses.
type ServiceMonitor struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Selector  meta.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// A PrometheusRule has the fields of the Prometheus operator's type that the chart uses.
type PrometheusRule struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		Groups []struct {
			Name     string `json:"name"`
			Interval string `json:"interval"`
			Rules    []struct {
				Alert       string            `json:"alert"`
				Record      string            `json:"record"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

// DeepCopyObject is for runtime.Object. Nothing here changes an object.
func (m *ServiceMonitor) DeepCopyObject() runtime.Object { c := *m; return &c }

// DeepCopyObject is for runtime.Object. Nothing here changes an object.
func (r *PrometheusRule) DeepCopyObject() runtime.Object { c := *r; return &c }

func addOperator(s *runtime.Scheme) error {
	s.AddKnownTypes(monitoring, &ServiceMonitor{}, &PrometheusRule{})
	return nil
}
