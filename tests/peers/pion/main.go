// Pion's DTLS 1.2 as a peer for the tests: it is the server or the client on a UDP socket, says in a line
// what was agreed, and echoes records until the other side closes.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"flag"
	"fmt"
	"log"
	"net"
	"os"

	"github.com/pion/dtls/v3"
)

func main() {
	log.SetFlags(0)
	role := flag.String("role", "client", "server or client of DTLS")
	address := flag.String("connect", "", "address of the other side, for a client")
	certificate := flag.String("cert", "", "chain, in PEM")
	key := flag.String("key", "", "private key, in PEM")
	roots := flag.String("roots", "", "trusted roots, in PEM")
	psk := flag.String("psk", "", "pre-shared key, in hexadecimal")
	identity := flag.String("identity", "", "PSK identity")
	cid := flag.Int("cid", -1, "length of the connection ID to receive; -1 for no connection IDs")
	mtu := flag.Int("mtu", 1200, "largest datagram")
	open := flag.Bool("open", false, "demand neither cookie nor certificate; Pion's server resumes sessions only so")
	load := flag.Bool("load", false, "echo for any number of clients at once, and print nothing")
	connections := flag.Int("connections", 1, "how many, one after the other")
	flag.Parse()

	config, err := configuration(*certificate, *key, *roots, *psk, *identity)
	if err != nil {
		log.Fatal(err)
	}
	config.MTU = *mtu
	if *open {
		config.InsecureSkipVerifyHello, config.ClientAuth = true, dtls.NoClientCert
	}
	if *cid >= 0 {
		config.ConnectionIDGenerator = dtls.RandomCIDGenerator(*cid)
	}
	var listener net.Listener
	if *role == "server" {
		listener, err = dtls.Listen("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, config)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("listening", listener.Addr().(*net.UDPAddr).Port)
	}
	if *load {
		log.Fatal(serveAll(listener))
	}
	for range *connections {
		connection, err := connect(listener, *address, config)
		if err == nil {
			err = serve(connection)
		}
		if err != nil {
			fmt.Println("failed:", err)
		} else {
			fmt.Println("closed")
		}
	}
}

func connect(listener net.Listener, address string, config *dtls.Config) (*dtls.Conn, error) {
	if listener != nil {
		connection, err := listener.Accept()
		if err != nil {
			return nil, err
		}
		return connection.(*dtls.Conn), nil
	}
	to, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	return dtls.Dial("udp", to, config)
}

// configuration is for both roles; each takes from it what is its own.
func configuration(certificate, key, roots, psk, identity string) (*dtls.Config, error) {
	config := &dtls.Config{SessionStore: &sessions{}}
	if psk != "" {
		secret, err := hex.DecodeString(psk)
		config.PSK = func([]byte) ([]byte, error) { return secret, nil }
		config.PSKIdentityHint = []byte(identity)
		config.CipherSuites = []dtls.CipherSuiteID{dtls.TLS_PSK_WITH_AES_128_GCM_SHA256, dtls.TLS_PSK_WITH_AES_128_CCM}
		return config, err
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", roots)
	}
	config.Certificates = []tls.Certificate{pair}
	config.RootCAs, config.ClientCAs = pool, pool
	config.ServerName = "localhost"
	config.ClientAuth = dtls.RequireAndVerifyClientCert
	return config, nil
}

// sessions keeps sessions in memory, without a limit.
type sessions struct{ kept map[string]dtls.Session }

func (s *sessions) Set(key []byte, session dtls.Session) error {
	if s.kept == nil {
		s.kept = map[string]dtls.Session{}
	}
	s.kept[string(key)] = session
	return nil
}

func (s *sessions) Get(key []byte) (dtls.Session, error) { return s.kept[string(key)], nil }

func (s *sessions) Del(key []byte) error {
	delete(s.kept, string(key))
	return nil
}

// serveAll echoes records of every client.
func serveAll(listener net.Listener) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			buffer := make([]byte, 2048)
			for {
				n, err := connection.Read(buffer)
				if err != nil {
					return
				}
				if _, err := connection.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// serve echoes records, from the handshake to the other side's close_notify.
func serve(connection *dtls.Conn) error {
	defer connection.Close()
	if err := connection.Handshake(); err != nil {
		return err
	}
	state, _ := connection.ConnectionState()
	exported, err := state.ExportKeyingMaterial("EXPORTER-of-a-test", nil, 32)
	if err != nil {
		return err
	}
	fmt.Printf("connected suite=%04x certificates=%d exported=%x\n", uint16(state.CipherSuiteID),
		len(state.PeerCertificates), exported)
	buffer := make([]byte, 1<<16)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			// Pion reports close_notify as an end of file or as a closed connection.
			return nil
		}
		if _, err := connection.Write(buffer[:n]); err != nil {
			return err
		}
	}
}
