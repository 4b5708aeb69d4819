// Command probe is what pods of the lab run: the sandbox's first process, a server that tells who
// it is, and a client that says what it got. One static program, so that an image needs nothing else.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const usage = `usage: probe VERB
  pause                      wait for the end; reap what is left behind
  sleep [TIME]               the same, for a time such as 10s
  serve [PORT [PATIENCE]]    HTTP on PORT (8080): / tells host name, addresses and caller; /echo echoes;
                             TCP on PORT+1 and UDP on PORT+2 echo lines, each with the host name before it;
                             at its end it accepts no connection, answers open ones once more with " bye"
                             and closes them, for at most PATIENCE (0s)
  get URL [TIMEOUT]          GET; prints the body, ends with 1 unless the status is 2xx
  api PATH                   GET from the cluster's API server by its Service, as the pod's service account
  tcp HOST:PORT [TEXT]       sends a line, prints the answer
  udp HOST:PORT [TEXT]       the same with a datagram
  lookup NAME [HOST:PORT]    the addresses of a name, from this name server
  hold HOST:PORT [COUNT [EVERY]]
                             keeps COUNT (1) TCP connections and sends a line on each EVERY (100ms), until
                             it is ended; prints one JSON object at the end: sent, answered, broken
  crowd KIND HOST:PORT COUNT EVERY [MORE]
                             runs COUNT clients of a server of serve, each with a request EVERY, until it is
                             ended, and prints one JSON object; the KIND is short (one connection for each
                             request), long (one connection for all), udp (with MORE as the lifetime of a
                             port) or dns (with MORE as the name, and a DNS server)
Under the name chroot, as the program of that name: chroot FOLDER PROGRAM [ARGUMENT]...`

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == "chroot" {
		fmt.Fprintln(os.Stderr, "chroot:", chroot(args))
		os.Exit(125)
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	at := func(n int, otherwise string) string {
		if len(args) > n {
			return args[n]
		}
		return otherwise
	}
	var err error
	switch args[0] {
	case "pause":
		pause(nil)
	case "sleep":
		var length time.Duration
		if length, err = time.ParseDuration(at(1, "876000h")); err == nil {
			pause(time.After(length))
		}
	case "serve":
		err = serve(at(1, "8080"), at(2, "0s"))
	case "get":
		err = get(at(1, ""), at(2, "5s"))
	case "api":
		err = api(at(1, "/version"))
	case "tcp", "udp":
		err = exchange(args[0], at(1, ""), at(2, "hello"))
	case "lookup":
		err = lookup(at(1, ""), at(2, ""))
	case "hold":
		err = hold(at(1, ""), at(2, "1"), at(3, "100ms"))
	case "crowd":
		err = runCrowd(at(1, ""), at(2, ""), at(3, "1"), at(4, "100ms"), at(5, "0s"))
	default:
		err = errors.New(usage)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

// chroot becomes another program below a folder, and returns only why it could not.
func chroot(args []string) error {
	if len(args) < 2 {
		return errors.New("a folder and a program are needed")
	}
	if err := syscall.Chroot(args[0]); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", args[1], syscall.Exec(args[1], args[1:], os.Environ()))
}

// pause waits for a signal to end or for the time, and reaps orphans meanwhile: as the first process
// of a pod it becomes their parent.
func pause(over <-chan time.Time) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for {
		select {
		case <-over:
			return
		case got := <-signals:
			if got != syscall.SIGCHLD {
				return
			}
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}

func serve(text, patience string) error {
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	grace, err := time.ParseDuration(patience)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	tcp, err := net.Listen("tcp", fmt.Sprintf(":%d", port+1))
	if err != nil {
		return err
	}
	udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port+2))
	if err != nil {
		return err
	}
	ending := make(chan struct{})
	streams := echoStreams(tcp, host, ending)
	enlarge(udp)
	go echoDatagrams(udp, host)
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{
			"host": host, "addresses": addresses(), "caller": r.RemoteAddr, "asked": r.Host,
		})
	})
	server := &http.Server{Addr: fmt.Sprintf(":%d", port), Handler: mux}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		pause(nil)
		within, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		close(ending)
		tcp.Close()
		server.Shutdown(within)
		idle := make(chan struct{})
		go func() {
			streams.Wait()
			close(idle)
		}()
		select {
		case <-idle:
		case <-within.Done():
		}
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-ended
	return nil
}

func addresses() []string {
	var found []string
	all, _ := net.InterfaceAddrs()
	for _, one := range all {
		if network, ok := one.(*net.IPNet); ok && !network.IP.IsLoopback() && !network.IP.IsLinkLocalUnicast() {
			found = append(found, network.IP.String())
		}
	}
	return found
}

// echoStreams returns the open connections. Each gets one more answer after the end of the server has begun.
func echoStreams(listener net.Listener, host string, ending <-chan struct{}) *sync.WaitGroup {
	var open sync.WaitGroup
	echo := func(stream net.Conn) {
		defer stream.Close()
		lines := bufio.NewScanner(stream)
		for lines.Scan() {
			end := ""
			select {
			case <-ending:
				end = farewell
			default:
			}
			if _, err := fmt.Fprintf(stream, "%s %s%s\n", host, lines.Text(), end); err != nil || end != "" {
				return
			}
		}
	}
	open.Go(func() {
		for {
			stream, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { echo(stream) })
		}
	})
	return &open
}

// enlarge gives a socket room for the datagrams of some seconds, in which the machine does not run this process. Beyond the
// machine's limit it needs CAP_NET_ADMIN.
func enlarge(socket net.PacketConn) {
	udp, ok := socket.(*net.UDPConn)
	if !ok {
		return
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, roomBytes)
	})
	if err != nil {
		udp.SetReadBuffer(roomBytes)
	}
}

func echoDatagrams(socket net.PacketConn, host string) {
	buffer := make([]byte, 65536)
	for {
		length, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		socket.WriteTo(append([]byte(host+" "), buffer[:length]...), from)
	}
}

func get(url, patience string) error {
	timeout, err := time.ParseDuration(patience)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return show(&http.Client{Timeout: timeout}, request)
}

// api asks with what the kubelet put into every pod.
func api(path string) error {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(account + "token")
	if err != nil {
		return err
	}
	at := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+at+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	return show(&http.Client{Timeout: patience, Transport: transport}, request)
}

// show prints the body of the answer; it is an error unless the status is 2xx.
func show(client *http.Client, request *http.Request) error {
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		words, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s: %s: %s", request.URL, answer.Status, words)
	}
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		return err
	}
	return nil
}

func exchange(network, address, text string) error {
	stream, err := net.DialTimeout(network, address, patience)
	if err != nil {
		return err
	}
	defer stream.Close()
	stream.SetDeadline(time.Now().Add(patience))
	if _, err := fmt.Fprintln(stream, text); err != nil {
		return err
	}
	line, err := bufio.NewReader(stream).ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Println(strings.TrimSpace(line))
	return nil
}

func lookup(name, server string) error {
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	resolver := net.DefaultResolver
	if server != "" {
		var dialer net.Dialer
		resolver = &net.Resolver{PreferGo: true, Dial: func(within context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(within, network, server)
		}}
	}
	found, err := resolver.LookupHost(within, name)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(found, "\n"))
	return nil
}

// hold keeps connections open and counts what becomes of them.
func hold(address, many, every string) error {
	count, err := strconv.Atoi(many)
	if err != nil {
		return err
	}
	pace, err := time.ParseDuration(every)
	if err != nil {
		return err
	}
	type tally struct{ sent, answered, broken int }
	results := make(chan tally, count)
	over, stop := context.WithCancel(context.Background())
	for range count {
		go func() {
			var mine tally
			defer func() { results <- mine }()
			stream, err := net.DialTimeout("tcp", address, patience)
			if err != nil {
				mine.broken = 1
				return
			}
			defer stream.Close()
			answers := bufio.NewReader(stream)
			for over.Err() == nil {
				mine.sent++
				stream.SetDeadline(time.Now().Add(holdPatience))
				if _, err := fmt.Fprintln(stream, mine.sent); err != nil {
					mine.broken = 1
					return
				}
				if _, err := answers.ReadString('\n'); err != nil {
					mine.broken = 1
					return
				}
				mine.answered++
				select {
				case <-over.Done():
				case <-time.After(pace):
				}
			}
		}()
	}
	fmt.Fprintln(os.Stderr, "holding", count)
	pause(nil)
	stop()
	var all tally
	for range count {
		one := <-results
		all.sent, all.answered, all.broken = all.sent+one.sent, all.answered+one.answered, all.broken+one.broken
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]int{
		"connections": count, "sent": all.sent, "answered": all.answered, "broken": all.broken,
	})
}

const (
	patience = 5 * time.Second
	// Longer than the network may be away before anybody calls it broken.
	holdPatience = 30 * time.Second
	roomBytes    = 8 << 20
)
