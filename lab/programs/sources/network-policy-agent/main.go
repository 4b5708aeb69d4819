// Package main attaches and fills the programs of aws-network-policy-agent by that agent's own code, without a cluster.
//
// It is started in the folder of the programs. Each line of its input is the JSON of one pod; the answer is a line
// `attached POD` or `cannot attach POD: CAUSE`. Programs, pins and filters stay when it ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/aws/aws-network-policy-agent/api/v1alpha1"
	"github.com/aws/aws-network-policy-agent/pkg/ebpf"
	"github.com/aws/aws-network-policy-agent/pkg/fwruleprocessor"
	"github.com/aws/aws-network-policy-agent/pkg/logger"
	"github.com/aws/aws-network-policy-agent/pkg/utils"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	connectionSeconds = 300
	connections       = 512 * 1024
)

type rule struct {
	CIDR string
	// Empty for all.
	Protocol corev1.Protocol
	Port     int32
}

type pod struct {
	Namespace, Name string
	// A direction without rules allows nothing.
	Ingress, Egress []rule
}

func main() {
	logger.New("error", "stderr", 0, 0)
	client, err := ebpf.NewBpfClient(context.Background(), os.Args[1], false, false, false,
		connectionSeconds, connections, "standard", false, "error")
	if err == nil {
		err = client.ReAttachEbpfProbes()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot start the agent's client:", err)
		os.Exit(1)
	}
	fmt.Println("started")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var of pod
		err := json.Unmarshal(lines.Bytes(), &of)
		if err == nil {
			err = attach(client, of)
		}
		if err != nil {
			fmt.Printf("cannot attach %s: %v\n", of.Name, err)
			continue
		}
		fmt.Println("attached", of.Name)
	}
}

// attach does what the agent's controller does for a pod that a policy selects.
func attach(client ebpf.BpfClient, of pod) error {
	identifier := utils.GetPodIdentifier(of.Name, of.Namespace)
	name := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
	if err := client.AttacheBPFProbes(name, identifier, 1); err != nil {
		return err
	}
	if err := client.UpdateEbpfMaps(identifier, rules(of.Ingress), rules(of.Egress)); err != nil {
		return err
	}
	states := map[int]int{
		ebpf.POD_STATE_MAP_KEY:                ebpf.POLICIES_APPLIED,
		ebpf.CLUSTER_POLICY_POD_STATE_MAP_KEY: ebpf.DEFAULT_ALLOW,
	}
	for key, state := range states {
		if err := client.UpdatePodStateEbpfMaps(identifier, key, state, true, true); err != nil {
			return err
		}
	}
	return nil
}

func rules(all []rule) []fwruleprocessor.EbpfFirewallRules {
	of := make([]fwruleprocessor.EbpfFirewallRules, 0, len(all))
	for _, one := range all {
		rule := fwruleprocessor.EbpfFirewallRules{IPCidr: v1alpha1.NetworkAddress(one.CIDR)}
		if one.Protocol != "" {
			rule.L4Info = []v1alpha1.Port{{Protocol: &one.Protocol, Port: &one.Port}}
		}
		of = append(of, rule)
	}
	return of
}
