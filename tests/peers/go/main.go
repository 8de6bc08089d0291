// Go's crypto/tls as a peer for the tests: it connects by TCP, is the server or the client of TLS on that
// connection, says in a line what was agreed, and echoes until the other side closes.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
)

// groups by the names of their RFCs.
var groups = map[string]tls.CurveID{
	"x25519":            tls.X25519,
	"secp256r1":         tls.CurveP256,
	"secp384r1":         tls.CurveP384,
	"X25519MLKEM768":    tls.X25519MLKEM768,
	"SecP256r1MLKEM768": tls.SecP256r1MLKEM768,
}

func main() {
	log.SetFlags(0)
	role := flag.String("role", "client", "server or client of TLS")
	address := flag.String("connect", "", "address of the other side")
	certificate := flag.String("cert", "", "chain, in PEM")
	key := flag.String("key", "", "private key, in PEM")
	roots := flag.String("roots", "", "trusted roots, in PEM")
	curves := flag.String("groups", "", "groups, separated by commas")
	protocols := flag.String("alpn", "", "application protocols, separated by commas")
	connections := flag.Int("connections", 1, "how many, one after the other")
	flag.Parse()

	config, err := configuration(*certificate, *key, *roots, *curves, *protocols)
	if err != nil {
		log.Fatal(err)
	}
	for range *connections {
		transport, err := net.Dial("tcp", *address)
		if err != nil {
			log.Fatal(err)
		}
		connection := tls.Client(transport, config)
		if *role == "server" {
			connection = tls.Server(transport, config)
		}
		if err := serve(connection); err != nil {
			fmt.Println("failed:", err)
		} else {
			fmt.Println("closed")
		}
		connection.Close()
	}
}

// configuration is for both roles; each takes from it what is its own.
func configuration(certificate, key, roots, curves, protocols string) (*tls.Config, error) {
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
	config := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{pair},
		RootCAs:            pool,
		ServerName:         "localhost",
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
		ClientCAs:          pool,
		ClientAuth:         tls.RequireAndVerifyClientCert,
	}
	for _, name := range split(curves) {
		group, known := groups[name]
		if !known {
			return nil, fmt.Errorf("unknown group %q", name)
		}
		config.CurvePreferences = append(config.CurvePreferences, group)
	}
	config.NextProtos = split(protocols)
	return config, nil
}

// split is strings.Split, but nothing has no elements.
func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// serve echoes, from the handshake to close_notify both ways.
func serve(connection *tls.Conn) error {
	if err := connection.Handshake(); err != nil {
		return err
	}
	state := connection.ConnectionState()
	exported, err := state.ExportKeyingMaterial("EXPORTER-of-a-test", []byte("context"), 100)
	if err != nil {
		return err
	}
	fmt.Printf("connected resumed=%t alpn=%s name=%s peer=%s exported=%x\n", state.DidResume,
		state.NegotiatedProtocol, state.ServerName, state.PeerCertificates[0].Subject.CommonName, exported)
	if _, err := io.Copy(connection, connection); err != nil {
		return err
	}
	return connection.CloseWrite()
}
