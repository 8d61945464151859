// A TCP forwarder over hysteria2 or TUIC.
//
//	tunnel server hysteria2|tuic CERT KEY
//	tunnel client hysteria2 SERVER TARGET MBIT
//	tunnel client tuic SERVER TARGET
//
// The client listens on 127.0.0.1:5001, and the server connects to TARGET. Between them is UDP port
// 4433. With hysteria2, both send at MBIT Mbit/s by Brutal, and with TUIC by BBR.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/sagernet/sing-quic/hysteria"
	"github.com/sagernet/sing-quic/hysteria2"
	"github.com/sagernet/sing-quic/tuic"
	"github.com/sagernet/sing/common/logger"
	"github.com/sagernet/sing/common/metadata"
	"github.com/sagernet/sing/common/network"
	singtls "github.com/sagernet/sing/common/tls"
)

const port = ":4433"

var user = [16]byte{1}

func main() {
	if os.Args[1] == "server" {
		log.Fatal(serve(os.Args[2], os.Args[3], os.Args[4]))
	}
	log.Fatal(forward(os.Args[2:]))
}

func serve(protocol, certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	config := settings{&tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h3"}}}
	socket, err := net.ListenPacket("udp4", port)
	if err != nil {
		return err
	}
	var service interface{ Start(net.PacketConn) error }
	if protocol == "tuic" {
		made, err := tuic.NewService[int](tuic.ServiceOptions{
			Context: context.Background(), Logger: logger.NOP(), TLSConfig: config,
			CongestionControl: "bbr", Handler: handler{},
		})
		if err != nil {
			return err
		}
		made.UpdateUsers([]int{0}, [][16]byte{user}, []string{"password"})
		service = made
	} else {
		made, err := hysteria2.NewService[int](hysteria2.ServiceOptions{
			Context: context.Background(), Logger: logger.NOP(), TLSConfig: config, Handler: handler{},
		})
		if err != nil {
			return err
		}
		made.UpdateUsers([]int{0}, []string{"password"})
		service = made
	}
	if err := service.Start(socket); err != nil {
		return err
	}
	log.Print("ready: listening")
	select {}
}

type handler struct{}

func (handler) NewConnectionEx(_ context.Context, stream net.Conn, _, to metadata.Socksaddr, _ network.CloseHandlerFunc) {
	connection, err := net.Dial("tcp", to.String())
	if err != nil {
		log.Print(err)
		stream.Close()
		return
	}
	relay(stream, connection)
}

func (handler) NewPacketConnectionEx(_ context.Context, packets network.PacketConn, _, _ metadata.Socksaddr, _ network.CloseHandlerFunc) {
	packets.Close()
}

type dialer interface {
	DialConn(context.Context, metadata.Socksaddr) (net.Conn, error)
}

func forward(arguments []string) error {
	config := settings{&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h3"}}}
	server, target := metadata.ParseSocksaddr(arguments[1]+port), metadata.ParseSocksaddr(arguments[2])
	var client dialer
	var err error
	if arguments[0] == "tuic" {
		client, err = tuic.NewClient(tuic.ClientOptions{
			Context: context.Background(), Dialer: network.SystemDialer, ServerAddress: server,
			TLSConfig: config, UUID: user, Password: "password", CongestionControl: "bbr",
		})
	} else {
		var rate uint64
		if rate, err = strconv.ParseUint(arguments[3], 10, 64); err != nil {
			return err
		}
		rate *= hysteria.MbpsToBps
		client, err = hysteria2.NewClient(hysteria2.ClientOptions{
			Context: context.Background(), Dialer: network.SystemDialer, Logger: logger.NOP(), ServerAddress: server,
			TLSConfig: config, Password: "password", SendBPS: rate, ReceiveBPS: rate,
		})
	}
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:5001")
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			for {
				stream, err := client.DialConn(context.Background(), target)
				if err == nil {
					relay(stream, connection)
					return
				}
				// The server is not ready.
				log.Print(err)
				time.Sleep(50 * time.Millisecond)
			}
		}()
	}
}

func relay(one, other net.Conn) {
	go io.Copy(one, other)
	io.Copy(other, one)
	one.Close()
	other.Close()
}

// settings are those of Go's own TLS, in the form that sing wants.
type settings struct{ own *tls.Config }

var errNoTCP = errors.New("TLS over TCP is not used")

func (s settings) ServerName() string                    { return s.own.ServerName }
func (s settings) SetServerName(name string)             { s.own.ServerName = name }
func (s settings) NextProtos() []string                  { return s.own.NextProtos }
func (s settings) SetNextProtos(names []string)          { s.own.NextProtos = names }
func (s settings) HandshakeTimeout() time.Duration       { return 0 }
func (s settings) SetHandshakeTimeout(time.Duration)     {}
func (s settings) STDConfig() (*tls.Config, error)       { return s.own, nil }
func (s settings) Client(net.Conn) (singtls.Conn, error) { return nil, errNoTCP }
func (s settings) Server(net.Conn) (singtls.Conn, error) { return nil, errNoTCP }
func (s settings) Clone() singtls.Config                 { return settings{s.own.Clone()} }
func (s settings) Start() error                          { return nil }
func (s settings) Close() error                          { return nil }
