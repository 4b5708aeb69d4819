// Package main is the program of the image agnhost, in front of Kubernetes' own agnhost.
//
// It runs `agnhost.kubernetes` with the same arguments. Two functions are its own:
//
//   - As `bash -c COMMAND` it runs the words of the command, because the image has no shell.
//   - On a kernel without SCTP it opens and accepts SCTP associations by itself, over raw IP sockets. The network
//     between pods forwards the same packets as those of a kernel with SCTP.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	upstream   = "/agnhost.kubernetes"
	sctpPrefix = "SERVE_SCTP_PORT_"
	// The number of the protocol SCTP.
	network = "ip4:132"

	header                                    = 12
	initial, initialAck, abort, echo, echoAck = 1, 2, 6, 10, 11
	cookieParameter                           = 7
	again                                     = 200 * time.Millisecond
)

func main() {
	words := os.Args
	if name := filepath.Base(words[0]); name == "bash" || name == "sh" {
		if len(words) != 3 || words[1] != "-c" {
			fail("OTHER: this shell runs only: %s -c COMMAND", name)
		}
		words = strings.Fields(words[2])
	}
	if filepath.Base(words[0]) != "agnhost" {
		fail("OTHER: this shell runs only agnhost")
	}
	words = words[1:]
	if _, err := os.Stat("/proc/net/sctp"); err != nil && len(words) > 0 {
		switch words[0] {
		case "connect":
			connectBySCTP(words[1:])
		case "porter":
			serveSCTP(words)
		}
	}
	err := syscall.Exec(upstream, append([]string{"agnhost"}, words...), os.Environ())
	fail("OTHER: cannot start %s: %v", upstream, err)
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

// serveSCTP accepts associations on all SCTP ports of the environment. The other ports are served by Kubernetes' program.
func serveSCTP(words []string) {
	var ports []uint16
	var others []string
	serves := false
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if port, ok := strings.CutPrefix(name, sctpPrefix); ok {
			ports = append(ports, number(port))
			continue
		}
		others = append(others, variable)
		serves = serves || strings.HasPrefix(name, "SERVE_")
	}
	if len(ports) == 0 {
		return
	}
	failed := make(chan error)
	for _, port := range ports {
		go func() { failed <- accept(port) }()
	}
	if serves {
		go func() {
			rest := exec.Command(upstream, words...)
			rest.Env, rest.Stdout, rest.Stderr = others, os.Stdout, os.Stderr
			rest.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			failed <- rest.Run()
		}()
	}
	fail("the server ended: %v", <-failed)
}

func number(text string) uint16 {
	port, err := net.LookupPort("tcp", text)
	if err != nil {
		fail("OTHER: %v", err)
	}
	return uint16(port)
}

// packet returns an SCTP packet with one chunk.
func packet(from, to uint16, tag uint32, kind byte, body []byte) []byte {
	bytes := make([]byte, header+4, header+4+len(body))
	binary.BigEndian.PutUint16(bytes, from)
	binary.BigEndian.PutUint16(bytes[2:], to)
	binary.BigEndian.PutUint32(bytes[4:], tag)
	bytes[header] = kind
	binary.BigEndian.PutUint16(bytes[header+2:], uint16(4+len(body)))
	bytes = append(bytes, body...)
	sum := crc32.Checksum(bytes, crc32.MakeTable(crc32.Castagnoli))
	binary.LittleEndian.PutUint32(bytes[8:], sum)
	return bytes
}

// opening is the body of INIT and INIT ACK: tag, window, streams out and in, and the first sequence number.
func opening(tag uint32) []byte {
	body := binary.BigEndian.AppendUint32(nil, tag)
	body = binary.BigEndian.AppendUint32(body, 1<<16)
	body = append(body, 0, 1, 0, 1)
	return binary.BigEndian.AppendUint32(body, 1)
}

// chunk returns the type and body of the first chunk of a packet between these ports.
func chunk(bytes []byte, from, to uint16) (byte, []byte, bool) {
	if len(bytes) < header+4 || binary.BigEndian.Uint16(bytes[2:]) != to {
		return 0, nil, false
	}
	if from != 0 && binary.BigEndian.Uint16(bytes) != from {
		return 0, nil, false
	}
	length := int(binary.BigEndian.Uint16(bytes[header+2:]))
	if length < 4 || header+length > len(bytes) {
		return 0, nil, false
	}
	return bytes[header], bytes[header+4 : header+length], true
}

// accept answers INIT and COOKIE ECHO. It has no state: the cookie has the tag of the other end.
func accept(port uint16) error {
	socket, err := net.ListenIP(network, nil)
	if err != nil {
		return err
	}
	bytes := make([]byte, 1<<16)
	for {
		count, peer, err := socket.ReadFromIP(bytes)
		if err != nil {
			return err
		}
		kind, body, ok := chunk(bytes[:count], 0, port)
		if !ok {
			continue
		}
		to := binary.BigEndian.Uint16(bytes)
		var answer []byte
		switch {
		case kind == initial && len(body) >= 16:
			tag := binary.BigEndian.Uint32(body)
			reply := append(opening(tag+1), 0, cookieParameter, 0, 8)
			reply = binary.BigEndian.AppendUint32(reply, tag)
			answer = packet(port, to, tag, initialAck, reply)
		case kind == echo && len(body) >= 4:
			answer = packet(port, to, binary.BigEndian.Uint32(body), echoAck, nil)
		default:
			continue
		}
		// The other end repeats a packet whose answer is lost.
		_, _ = socket.WriteToIP(answer, peer)
	}
}

// connectBySCTP opens an association and ends the process if the arguments ask for SCTP.
func connectBySCTP(words []string) {
	destination, timeout, asked := "", time.Second, false
	for _, word := range words {
		if value, ok := strings.CutPrefix(word, "--timeout="); ok {
			var err error
			if timeout, err = time.ParseDuration(value); err != nil {
				fail("UNKNOWN: %v", err)
			}
		} else if word == "--protocol=sctp" {
			asked = true
		} else if !strings.HasPrefix(word, "-") {
			destination = word
		}
	}
	if !asked {
		return
	}
	host, port, err := net.SplitHostPort(destination)
	if err != nil {
		fail("UNKNOWN: %v", err)
	}
	address, err := net.ResolveIPAddr("ip4", host)
	if err != nil {
		fail("DNS: %v", err)
	}
	err = associate(address, number(port), time.Now().Add(timeout))
	var failure net.Error
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &failure) && failure.Timeout():
		fail("TIMEOUT")
	case errors.Is(err, syscall.ECONNREFUSED):
		fail("REFUSED")
	default:
		fail("OTHER: %v", err)
	}
}

func associate(address *net.IPAddr, to uint16, until time.Time) error {
	socket, err := net.DialIP(network, nil, address)
	if err != nil {
		return err
	}
	defer socket.Close()
	from := uint16(1024 + os.Getpid()%60000 ^ int(time.Now().UnixNano()>>10)&1023)
	tag := uint32(time.Now().UnixNano()) | 1
	// The packet that is repeated until its answer arrives.
	next := packet(from, to, 0, initial, opening(tag))
	peer := uint32(0)
	bytes := make([]byte, 1<<16)
	for {
		if _, err := socket.Write(next); err != nil {
			return err
		}
		deadline := time.Now().Add(again)
		if deadline.After(until) {
			deadline = until
		}
		if err := socket.SetReadDeadline(deadline); err != nil {
			return err
		}
		for {
			// `Read` does not remove the IP header.
			count, _, err := socket.ReadFromIP(bytes)
			var failure net.Error
			if errors.As(err, &failure) && failure.Timeout() && time.Now().Before(until) {
				break
			}
			if err != nil {
				return err
			}
			kind, body, ok := chunk(bytes[:count], to, from)
			if ok && kind == initialAck && len(body) >= 24 {
				peer = binary.BigEndian.Uint32(body)
				next = packet(from, to, peer, echo, body[20:24])
				break
			}
			if ok && kind == echoAck {
				_, err = socket.Write(packet(from, to, peer, abort, nil))
				return err
			}
			if ok && kind == abort {
				return syscall.ECONNREFUSED
			}
		}
	}
}
