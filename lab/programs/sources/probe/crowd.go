package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The end of a server's last answer on a connection that it closes in good order.
const farewell = " bye"

// tally is the result of the clients of a crowd.
type tally struct {
	Clients int `json:"clients"`
	// Connections, lines, datagrams or questions.
	Sent     int `json:"sent"`
	Answered int `json:"answered"`
	// Connections that the server closed in good order.
	Closed int `json:"closed"`
	// The times in Unix milliseconds of the first and the last answer of each server, by the time of the request.
	Hosts map[string][2]int64 `json:"hosts"`
	// All failures, of which the list has the first ones.
	Failed   int       `json:"failed"`
	Failures []failure `json:"failures"`
}

type failure struct {
	Client int `json:"client"`
	// Unix milliseconds of the request.
	At int64 `json:"at"`
	// The server of the last answer before it to the same client port.
	Host  string `json:"host"`
	Cause string `json:"cause"`
}

// crowd is the clients of one kind.
type crowd struct {
	kind, address string
	pace          time.Duration
	// The lifetime of a UDP client's port; 0 for no end.
	life time.Duration
	// The name that DNS clients ask for.
	name string
	over context.Context

	mutex sync.Mutex
	all   tally
	// The last port of a UDP client.
	port int
}

func runCrowd(kind, address, many, every, more string) error {
	count, err := strconv.Atoi(many)
	if err != nil {
		return err
	}
	pace, err := time.ParseDuration(every)
	if err != nil {
		return err
	}
	of := &crowd{kind: kind, address: address, pace: pace, port: firstPort[kind]}
	of.all = tally{Clients: count, Hosts: map[string][2]int64{}, Failures: []failure{}}
	clients := map[string]func(int){"short": of.short, "long": of.long, "udp": of.datagrams, "dns": of.questions}
	run, ok := clients[kind]
	if !ok {
		return errors.New(usage)
	}
	switch kind {
	case "udp":
		if of.life, err = time.ParseDuration(more); err != nil {
			return err
		}
	case "dns":
		of.name = more
	}
	over, stop := context.WithCancel(context.Background())
	of.over = over
	var running sync.WaitGroup
	for client := range count {
		running.Go(func() {
			// Spread over the pace.
			if of.sleep(time.Now().Add(pace * time.Duration(client) / time.Duration(count))) {
				run(client)
			}
		})
	}
	pause(nil)
	stop()
	running.Wait()
	return json.NewEncoder(os.Stdout).Encode(of.all)
}

// dial returns a UDP socket with a port that no socket of the crowd has had. A load balancer keeps the flow of a port at its
// target, so a port that is used again could lead to a target that is no longer healthy.
func (of *crowd) dial() (net.Conn, error) {
	for {
		of.mutex.Lock()
		of.port++
		port := of.port
		of.mutex.Unlock()
		if port >= firstPort[of.kind]+manyPorts {
			return nil, errors.New("no port is left")
		}
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{Port: port}}
		socket, err := dialer.Dial("udp", of.address)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return socket, err
		}
	}
}

// sleep returns false at the end of the crowd.
func (of *crowd) sleep(until time.Time) bool {
	select {
	case <-of.over.Done():
		return false
	case <-time.After(time.Until(until)):
		return true
	}
}

func (of *crowd) sent() {
	of.mutex.Lock()
	defer of.mutex.Unlock()
	of.all.Sent++
}

func (of *crowd) answered(host string, at time.Time) {
	of.mutex.Lock()
	defer of.mutex.Unlock()
	of.all.Answered++
	of.note(host, at)
}

// note needs the mutex.
func (of *crowd) note(host string, at time.Time) {
	known, ok := of.all.Hosts[host]
	when := at.UnixMilli()
	if !ok {
		known = [2]int64{when, when}
	}
	of.all.Hosts[host] = [2]int64{min(known[0], when), max(known[1], when)}
}

func (of *crowd) failed(client int, at time.Time, host string, cause string) {
	of.mutex.Lock()
	defer of.mutex.Unlock()
	of.all.Failed++
	if len(of.all.Failures) < mostFailures {
		of.all.Failures = append(of.all.Failures, failure{client, at.UnixMilli(), host, cause})
	}
}

// line sends a line and returns the server of the answer. The last value is true if the server closes the connection.
func line(stream net.Conn, answers *bufio.Reader, text string) (string, bool, error) {
	stream.SetDeadline(time.Now().Add(holdPatience))
	if _, err := fmt.Fprintln(stream, text); err != nil {
		return "", false, err
	}
	answer, err := answers.ReadString('\n')
	if err != nil {
		return "", false, err
	}
	answer = strings.TrimSuffix(answer, "\n")
	rest, ends := strings.CutSuffix(answer, farewell)
	host, echo, _ := strings.Cut(rest, " ")
	if echo != text {
		return "", false, fmt.Errorf("another answer: %q", answer)
	}
	return host, ends, nil
}

// short opens one connection after the other, with one line each.
func (of *crowd) short(client int) {
	for next := time.Now(); of.sleep(next); next = next.Add(of.pace) {
		at := time.Now()
		of.sent()
		stream, err := net.DialTimeout("tcp", of.address, holdPatience)
		if err == nil {
			var host string
			if host, _, err = line(stream, bufio.NewReader(stream), "short"); err == nil {
				of.answered(host, at)
			}
			stream.Close()
		}
		if err != nil {
			of.failed(client, at, "", err.Error())
		}
	}
}

// long keeps a connection and sends one line after the other. It opens another one if the server closes it.
func (of *crowd) long(client int) {
	next := time.Now()
	for of.over.Err() == nil {
		at := time.Now()
		stream, err := net.DialTimeout("tcp", of.address, holdPatience)
		if err != nil {
			of.failed(client, at, "", err.Error())
			of.sleep(at.Add(of.pace))
			continue
		}
		answers, last := bufio.NewReader(stream), ""
		for number := 0; of.sleep(next); number++ {
			next = next.Add(of.pace)
			at = time.Now()
			of.sent()
			host, ends, err := line(stream, answers, strconv.Itoa(number))
			if err != nil {
				of.failed(client, at, last, err.Error())
				break
			}
			of.answered(host, at)
			if last = host; ends {
				of.mutex.Lock()
				of.all.Closed++
				of.mutex.Unlock()
				break
			}
		}
		stream.Close()
	}
}

// datagrams sends numbered datagrams from one port after the other.
func (of *crowd) datagrams(client int) {
	var ports sync.WaitGroup
	defer ports.Wait()
	next := time.Now()
	for of.over.Err() == nil {
		socket, err := of.dial()
		if err != nil {
			of.failed(client, time.Now(), "", err.Error())
			return
		}
		var mutex sync.Mutex
		var sent []time.Time
		var hosts []string
		// The end of the answers, once the last datagram is sent.
		ports.Go(func() {
			buffer := make([]byte, 1<<16)
			for {
				length, err := socket.Read(buffer)
				if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil {
					// The refusal of a datagram: it has no answer.
					continue
				}
				host, text, _ := strings.Cut(string(buffer[:length]), " ")
				number, err := strconv.Atoi(text)
				mutex.Lock()
				if err == nil && number >= 0 && number < len(hosts) {
					hosts[number] = host
				}
				mutex.Unlock()
			}
		})
		for began := next; of.sleep(next) && (of.life == 0 || next.Sub(began) < of.life); next = next.Add(of.pace) {
			mutex.Lock()
			number := len(sent)
			sent, hosts = append(sent, time.Now()), append(hosts, "")
			mutex.Unlock()
			// The error of an earlier datagram ends one call and sends nothing.
			for range 3 {
				if _, err := fmt.Fprint(socket, number); err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
					break
				}
			}
		}
		ports.Go(func() {
			isAnswered := func() bool {
				mutex.Lock()
				defer mutex.Unlock()
				return !slices.Contains(hosts, "")
			}
			for until := time.Now().Add(datagramPatience); !isAnswered() && time.Now().Before(until); {
				time.Sleep(10 * time.Millisecond)
			}
			socket.Close()
			mutex.Lock()
			defer mutex.Unlock()
			of.judge(client, sent, hosts)
		})
	}
}

// judge counts the datagrams of one port.
func (of *crowd) judge(client int, sent []time.Time, hosts []string) {
	last := ""
	for number, host := range hosts {
		of.sent()
		if host == "" {
			of.failed(client, sent[number], last, "no answer")
			continue
		}
		of.answered(host, sent[number])
		last = host
	}
}

// questions asks for a name, each time from another port, and does not repeat a question.
func (of *crowd) questions(client int) {
	for next := time.Now(); of.sleep(next); next = next.Add(of.pace) {
		at := time.Now()
		of.sent()
		if err := of.ask(uint16(at.UnixNano())); err != nil {
			of.failed(client, at, "", err.Error())
		} else {
			of.answered("", at)
		}
	}
}

// ask sends one question for IPv4 addresses (RFC 1035) and checks the head of the answer.
func (of *crowd) ask(id uint16) error {
	question := binary.BigEndian.AppendUint16(nil, id)
	question = append(question, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	for label := range strings.SplitSeq(strings.TrimSuffix(of.name, "."), ".") {
		question = append(question, byte(len(label)))
		question = append(question, label...)
	}
	question = append(question, 0, 0, 1, 0, 1)
	socket, err := of.dial()
	if err != nil {
		return err
	}
	defer socket.Close()
	socket.SetDeadline(time.Now().Add(datagramPatience))
	if _, err := socket.Write(question); err != nil {
		return err
	}
	answer := make([]byte, 1<<16)
	length, err := socket.Read(answer)
	if err != nil {
		return err
	}
	if length < 12 || binary.BigEndian.Uint16(answer) != id {
		return errors.New("another answer")
	}
	if code, found := answer[3]&15, binary.BigEndian.Uint16(answer[6:]); code != 0 || found == 0 {
		return fmt.Errorf("code %d with %d addresses", code, found)
	}
	return nil
}

const (
	// A datagram without an answer in this time is lost.
	datagramPatience = 10 * time.Second
	mostFailures     = 200
	manyPorts        = 25000
)

// The ports of UDP clients, by kind: two crowds of one pod have different ones.
var firstPort = map[string]int{"udp": 10000, "dns": 10000 + manyPorts}
