// A client on quic-go. It uploads zeros to a URL, and prints the time and packet counts as JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func main() {
	authorities := flag.String("cafile", "", "root certificates, a `file` (PEM)")
	length := flag.Int64("bytes", 10<<20, "how much to upload")
	flag.Parse()

	if err := upload(*authorities, flag.Arg(0), *length); err != nil {
		fmt.Fprintln(os.Stderr, "quic-go:", err)
		os.Exit(1)
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

func upload(authorities, url string, length int64) error {
	pem, err := os.ReadFile(authorities)
	if err != nil {
		return fmt.Errorf("cannot read root certificates: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return errors.New("there is no root certificate in " + authorities)
	}
	// The transport dials like this by itself. The program dials to read the connection's statistics.
	var connection *quic.Conn
	dial := func(ctx context.Context, address string, config *tls.Config, quicConfig *quic.Config) (*quic.Conn, error) {
		var err error
		connection, err = quic.DialAddrEarly(ctx, address, config, quicConfig)
		return connection, err
	}
	transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, Dial: dial}
	defer transport.Close()
	request, err := http.NewRequest(http.MethodPut, url, io.LimitReader(zeros{}, length))
	if err != nil {
		return err
	}
	request.ContentLength = length
	began := time.Now()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("cannot upload: %w", err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return fmt.Errorf("cannot read the answer: %w", err)
	}
	seconds := time.Since(began).Seconds()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("the server answers %s", answer.Status)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"seconds": seconds, "retransmitted": connection.ConnectionStats().PacketsLost,
	})
}
