// A witness of transparency-dev, in memory, over HTTPS on loopback. It says its port and its verifier key,
// and ends with its input.
package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	signer "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	log.SetFlags(0)
	key := flag.String("log", "", "verifier key of the log")
	certificate := flag.String("cert", "", "chain, in PEM")
	private := flag.String("key", "", "private key, in PEM")
	flag.Parse()

	verifier, err := note.NewVerifier(*key)
	check(err)
	secret, public, err := note.GenerateKey(rand.Reader, "witness.example/go")
	check(err)
	cosigner, err := signer.NewSignerForCosignatureV1(secret)
	check(err)
	public, err = signer.VKeyToCosignatureV1(public)
	check(err)
	known := func(_ context.Context, origin string) (note.Verifier, bool, error) {
		return verifier, origin == verifier.Name(), nil
	}
	options := witness.Opts{Persistence: inmemory.New(), Signers: []note.Signer{cosigner}, VerifierForLog: known}
	own, err := witness.New(context.Background(), options)
	check(err)

	identity, err := tls.LoadX509KeyPair(*certificate, *private)
	check(err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{identity}})
	check(err)
	http.HandleFunc("POST /prefix/add-checkpoint", witness.NewHTTPHandler(own).AddCheckpoint)
	go func() { check(http.Serve(listener, nil)) }()
	fmt.Printf("%d %s\n", listener.Addr().(*net.TCPAddr).Port, public)
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
