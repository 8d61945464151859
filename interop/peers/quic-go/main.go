// An HTTP/3 server on quic-go. It answers an upload with the body's length and hash, and serves the
// files of a directory.
package main

import (
	"crypto/sha256"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const stacksChoice = -1

func main() {
	listen := flag.String("listen", "", "`address` and port to listen on")
	certificate := flag.String("cert", "", "certificate `file` (PEM)")
	key := flag.String("key", "", "key `file` (PEM)")
	root := flag.String("root", "", "`directory` of the files that are served")
	connectionIDs := flag.Int("cid-length", stacksChoice, "`length` of the connection IDs")
	// Go's TLS 1.3 has no setting for cipher suites. The client's order decides.
	flag.String("cipher", "", "ignored: the client's order of cipher suites decides, not `name`")
	// quic-go always updates the keys first after 100 packets, and has no setting for that.
	flag.Bool("key-update", false, "ignored: quic-go always updates the keys early")
	flag.Parse()

	if err := serve(*listen, *certificate, *key, *root, *connectionIDs); err != nil {
		fmt.Fprintln(os.Stderr, "quic-go:", err)
		os.Exit(1)
	}
}

func serve(listen, certificate, key, root string, connectionIDs int) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate: %w", err)
	}
	files, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("cannot serve files: %w", err)
	}
	address, err := net.ResolveUDPAddr("udp", listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	transport := quic.Transport{Conn: socket}
	switch {
	case connectionIDs == 0:
		// A ConnectionIDLength of 0 means the default.
		transport.ConnectionIDGenerator = noConnectionIDs{}
	case connectionIDs != stacksChoice:
		transport.ConnectionIDLength = connectionIDs
	}
	tlsConfig := http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}})
	listener, err := transport.ListenEarly(tlsConfig, &quic.Config{Allow0RTT: true})
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	fmt.Println("ready: listening on", listener.Addr())
	server := http3.Server{Handler: handler{files}}
	return server.ServeListener(listener)
}

type noConnectionIDs struct{}

func (noConnectionIDs) GenerateConnectionID() (quic.ConnectionID, error) {
	return quic.ConnectionID{}, nil
}

func (noConnectionIDs) ConnectionIDLen() int {
	return 0
}

type handler struct {
	files *os.Root
}

func (h handler) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	switch request.Method {
	case http.MethodPut, http.MethodPost:
		receive(answer, request.Body)
	case http.MethodGet:
		h.send(answer, strings.TrimPrefix(request.URL.Path, "/"))
	default:
		answer.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func receive(answer http.ResponseWriter, body io.Reader) {
	hash := sha256.New()
	length, err := io.Copy(hash, body)
	if err != nil {
		// Only a reset shows the client that there is no receipt.
		panic(http.ErrAbortHandler)
	}
	answer.Header().Set("content-type", "application/json")
	fmt.Fprintf(answer, `{"bytes": %d, "sha256": "%x"}`, length, hash.Sum(nil))
}

func (h handler) send(answer http.ResponseWriter, name string) {
	// Open refuses names that lead out of the root.
	file, err := h.files.Open(name)
	if err != nil {
		answer.WriteHeader(http.StatusNotFound)
		return
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil || !about.Mode().IsRegular() {
		answer.WriteHeader(http.StatusNotFound)
		return
	}
	answer.Header().Set("content-length", strconv.FormatInt(about.Size(), 10))
	if _, err := io.Copy(answer, file); err != nil {
		panic(http.ErrAbortHandler)
	}
}
