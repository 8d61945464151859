// A client on quic-go. It downloads a URL, or uploads zeros to it, and prints the time and packet
// counts as JSON.
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
	length := flag.Int64("upload", 0, "upload so many `bytes`, and do not download")
	output := flag.String("output", os.DevNull, "write the answer to this `file`")
	flag.Parse()

	if err := transfer(*authorities, flag.Arg(0), *length, *output); err != nil {
		fmt.Fprintln(os.Stderr, "quic-go:", err)
		os.Exit(1)
	}
}

type zeros struct{}

func (zeros) Read(into []byte) (int, error) {
	clear(into)
	return len(into), nil
}

func transfer(authorities, url string, length int64, output string) error {
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
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if length > 0 {
		request.Method = http.MethodPut
		request.Body = io.NopCloser(io.LimitReader(zeros{}, length))
		request.ContentLength = length
	}
	began := time.Now()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("the request failed: %w", err)
	}
	defer answer.Body.Close()
	file, err := os.Create(output)
	if err != nil {
		return fmt.Errorf("cannot write the answer: %w", err)
	}
	defer file.Close()
	received, err := io.Copy(file, answer.Body)
	if err != nil {
		return fmt.Errorf("cannot read the answer: %w", err)
	}
	seconds := time.Since(began).Seconds()
	if answer.StatusCode >= 300 {
		return fmt.Errorf("the server answers %s", answer.Status)
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"bytes": received, "seconds": seconds, "retransmitted": connection.ConnectionStats().PacketsLost,
	})
}
