// Reads a log as others read it, and fails if anything is wrong: Go's own golang.org/x/mod/sumdb/tlog
// verifies every tile and proof, and Tessera's fsck makes all tiles again from the entries.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	witness "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A source is the log below a URL.
type source struct {
	url  *url.URL
	http *http.Client
}

func (s source) read(path string) ([]byte, error) {
	if s.url.Scheme == "file" {
		return os.ReadFile(filepath.Join(s.url.Path, path))
	}
	response, err := s.http.Get(s.url.JoinPath(path).String())
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, response.Status)
	}
	return io.ReadAll(response.Body)
}

// Height, ReadTiles and SaveTiles are tlog.TileReader.
func (source) Height() int { return 8 }

func (s source) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		// The paths of Go's checksum database have the height of the tiles, too.
		data, err := s.read("tile/" + strings.TrimPrefix(tile.Path(), "tile/8/"))
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

func (source) SaveTiles([]tlog.Tile, [][]byte) {}

func main() {
	log.SetFlags(0)
	address := flag.String("log", "", "URL of the log, https: or file:")
	key := flag.String("key", "", "verifier key of the log")
	cosigner := flag.String("witness", "", "verifier key of a witness that must have signed, too")
	roots := flag.String("roots", "", "trusted roots, in PEM")
	flag.Parse()
	location, err := url.Parse(*address)
	check(err)
	from := source{url: location, http: &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(*roots)}}}

	verifier, err := note.NewVerifier(*key)
	check(err)
	witnessed, err := witness.NewVerifierForCosignatureV1(*cosigner)
	check(err)
	tree := checkpoint(from, verifier, witnessed)
	entries := bundles(from, tree.N)
	proofs(from, tree, entries)
	check(complete(from, verifier))
	fmt.Printf("%d entries\n", tree.N)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func trusting(path string) *tls.Config {
	if path == "" {
		return nil
	}
	pem, err := os.ReadFile(path)
	check(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		log.Fatal("no certificate in ", path)
	}
	return &tls.Config{RootCAs: roots}
}

// checkpoint opens the newest checkpoint, which the log and the witness must have signed.
func checkpoint(from source, keys ...note.Verifier) tlog.Tree {
	text, err := from.read("checkpoint")
	check(err)
	signed, err := note.Open(text, note.VerifierList(keys...))
	check(err)
	if len(signed.Sigs) != len(keys) || len(signed.UnverifiedSigs) != 0 {
		log.Fatalf("%d of %d signatures, and %d others", len(signed.Sigs), len(keys), len(signed.UnverifiedSigs))
	}
	lines := strings.Split(signed.Text, "\n")
	if lines[0] != keys[0].Name() {
		log.Fatal("another origin: ", lines[0])
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check(err)
	root, err := base64.StdEncoding.DecodeString(lines[2])
	check(err)
	return tlog.Tree{N: size, Hash: tlog.Hash(root)}
}

// bundles reads all entries.
func bundles(from source, size int64) [][]byte {
	var entries [][]byte
	for first := int64(0); first < size; first += 256 {
		tile := tlog.Tile{H: 8, L: 0, N: first / 256, W: int(min(256, size-first))}
		path := "tile/entries/" + strings.TrimPrefix(tile.Path(), "tile/8/0/")
		bundle, err := from.read(path)
		check(err)
		for len(bundle) > 0 {
			length := int(binary.BigEndian.Uint16(bundle))
			entries = append(entries, bundle[2:2+length])
			bundle = bundle[2+length:]
		}
	}
	if int64(len(entries)) != size {
		log.Fatalf("%d entries instead of %d", len(entries), size)
	}
	return entries
}

// proofs makes the proofs that clients of the checksum database use, from verified tiles, and checks them.
func proofs(from source, tree tlog.Tree, entries [][]byte) {
	tiles := tlog.TileHashReader(tree, from)
	root, err := tlog.TreeHash(tree.N, tiles)
	check(err)
	if root != tree.Hash {
		log.Fatal("the tiles have another root than the checkpoint")
	}
	for index, entry := range entries {
		number := int64(index)
		proof, err := tlog.ProveRecord(tree.N, number, tiles)
		check(err)
		check(tlog.CheckRecord(proof, tree.N, tree.Hash, number, tlog.RecordHash(entry)))
	}
	for size := int64(1); size <= tree.N; size += 1 + size/16 {
		older, err := tlog.TreeHash(size, tiles)
		check(err)
		proof, err := tlog.ProveTree(tree.N, size, tiles)
		check(err)
		check(tlog.CheckTree(proof, tree.N, tree.Hash, size, older))
	}
}

// complete runs Tessera's fsck.
func complete(from source, verifier note.Verifier) error {
	var fetcher fsck.Fetcher = &client.FileFetcher{Root: from.url.Path}
	if from.url.Scheme != "file" {
		// Tessera joins paths to a URL that ends with a slash.
		remote, err := client.NewHTTPFetcher(from.url.JoinPath("/"), from.http)
		if err != nil {
			return err
		}
		fetcher = remote
	}
	leaves := func(bundle []byte) ([][]byte, error) {
		var parsed api.EntryBundle
		if err := parsed.UnmarshalText(bundle); err != nil {
			return nil, err
		}
		var hashes [][]byte
		for _, entry := range parsed.Entries {
			hashes = append(hashes, bytes.Clone(rfc6962.DefaultHasher.HashLeaf(entry)))
		}
		return hashes, nil
	}
	return fsck.New(verifier.Name(), verifier, fetcher, leaves, fsck.Opts{N: 1}).Check(context.Background())
}
