package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
)

func openForReading(path string) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
}

func check(path string) error {
	db, err := openForReading(path)
	if err != nil {
		return err
	}
	defer db.Close()
	found := 0
	err = db.View(func(tx *bolt.Tx) error {
		for problem := range tx.Check() {
			fmt.Println(problem)
			found++
		}
		return nil
	})
	if err == nil && found > 0 {
		err = fmt.Errorf("%d errors", found)
	}
	return err
}

// A bucket as bbolt sees it.  Hash is SHA-256 over its own rows in order, each as the big-endian 4-byte length
// of the key, the key, the length of the value, the value.  Nested buckets are no rows but entries of their own.
type bucketDump struct {
	Path     []string `json:"path"` // hexadecimal names, outermost first
	Rows     int      `json:"rows"`
	Hash     string   `json:"hash"`
	Sequence uint64   `json:"sequence"`
	Inline   bool     `json:"inline"`
	Depth    int      `json:"depth"` // levels of its tree
}

type fileDump struct {
	PageSize int          `json:"page_size"`
	Size     int64        `json:"size"` // high-water mark, in bytes
	TxID     int          `json:"txid"`
	Buckets  []bucketDump `json:"buckets"` // depth first, in key order
}

func dump(path string) error {
	db, err := openForReading(path)
	if err != nil {
		return err
	}
	defer db.Close()
	result := fileDump{PageSize: db.Info().PageSize, Buckets: []bucketDump{}}
	err = db.View(func(tx *bolt.Tx) error {
		result.Size, result.TxID = tx.Size(), tx.ID()
		return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
			return result.add([]string{hex.EncodeToString(name)}, bucket)
		})
	})
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(result)
}

func (result *fileDump) add(path []string, bucket *bolt.Bucket) error {
	at := len(result.Buckets)
	result.Buckets = append(result.Buckets, bucketDump{})
	rows, hash := 0, sha256.New()
	err := bucket.ForEach(func(key, value []byte) error {
		if value == nil {
			nested := append(append([]string{}, path...), hex.EncodeToString(key))
			return result.add(nested, bucket.Bucket(key))
		}
		rows++
		for _, part := range [][]byte{key, value} {
			var length [4]byte
			binary.BigEndian.PutUint32(length[:], uint32(len(part)))
			hash.Write(length[:])
			hash.Write(part)
		}
		return nil
	})
	result.Buckets[at] = bucketDump{
		Path:     path,
		Rows:     rows,
		Hash:     hex.EncodeToString(hash.Sum(nil)),
		Sequence: bucket.Sequence(),
		Inline:   bucket.Root() == 0,
		Depth:    bucket.Stats().Depth,
	}
	return err
}
