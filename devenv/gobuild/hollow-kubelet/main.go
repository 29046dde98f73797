// The kubelet of `make e2e-kubelet`: it keeps a Node for an external cloud provider, on a fake container runtime and a fake
// machine. The hollow-node of Kubernetes has no flag for an external cloud provider.
package main

import (
	"context"
	"os"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	remote "k8s.io/cri-client/pkg"
	fakeremote "k8s.io/cri-client/pkg/fake"
	"k8s.io/klog/v2"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubemark"
)

func must[T any](value T, err error) T {
	if err != nil {
		klog.Fatal(err)
	}
	return value
}

func main() {
	kubeconfig, name, nodeIP := os.Args[1], os.Args[2], os.Args[3]

	flags, settings := kubemark.GetHollowKubeletConfig(&kubemark.HollowKubeletOptions{NodeName: name, MaxPods: 110})
	flags.CloudProvider = "external"
	flags.NodeIP = nodeIP
	_ = os.RemoveAll(flags.RootDirectory) // always below /tmp
	flags.RootDirectory, settings.StaticPodPath, settings.PodLogsDir = os.TempDir(), "", os.TempDir()
	settings.ProviderID = "" // the cloud controller manager sets it
	settings.EnableServer = false
	settings.NodeStatusReportFrequency = settings.NodeStatusUpdateFrequency // 10 s, also without a change

	client := must(clientset.NewForConfig(must(clientcmd.BuildConfigFromFlags("", kubeconfig))))
	runtime, endpoint, logger := fakeremote.NewFakeRemoteRuntime(), must(fakeremote.GenerateEndpoint()), klog.Background()
	must(endpoint, runtime.Start(endpoint))
	service := must(remote.NewRemoteRuntimeService(endpoint, 15*time.Second, noop.NewTracerProvider(), &logger))
	kubemark.NewHollowKubelet(flags, settings, client, client, &cadvisortest.Fake{NodeName: name}, runtime.ImageService,
		service, cm.NewStubContainerManager()).Run(context.Background())
}
