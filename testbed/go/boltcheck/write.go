package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"

	bolt "go.etcd.io/bbolt"
)

// What `make` writes.  Everything follows from the seed: the same specification gives the same rows.
type makeSpec struct {
	PageSize int          `json:"page_size"` // bytes; 0 is this machine's
	Seed     uint64       `json:"seed"`
	Unsynced bool         `json:"unsynced"` // leave the free list out, as etcd does
	HashMap  bool         `json:"hashmap"`  // free list kept as a map, as etcd does
	Buckets  []bucketSpec `json:"buckets"`
}

type bucketSpec struct {
	Name         string       `json:"name"`
	Keys         int          `json:"keys"`
	KeySize      [2]int       `json:"key_size"`   // least and most bytes; at least 8 for sequential keys
	ValueSize    [2]int       `json:"value_size"` // least and most bytes
	BigEvery     int          `json:"big_every"`  // each time so many rows were put, one of BigSize bytes
	BigSize      int          `json:"big_size"`
	Sequential   bool         `json:"sequential"`   // ascending keys, as etcd's revisions
	Fill         float64      `json:"fill"`         // FillPercent; 0 is bbolt's default
	Transactions int          `json:"transactions"` // over how many the puts are spread; 0 is 1
	Delete       float64      `json:"delete"`       // the part of the rows deleted afterwards, in one transaction
	Sequence     uint64       `json:"sequence"`
	Buckets      []bucketSpec `json:"buckets"`
}

// What `commits` does to an existing file.
type commitSpec struct {
	Seed       uint64  `json:"seed"`
	Commits    int     `json:"commits"`
	Operations int     `json:"operations"` // per commit
	Bucket     string  `json:"bucket"`     // top-level, made if missing
	Delete     float64 `json:"delete"`     // the part of the operations that deletes a random existing row
	KeySize    [2]int  `json:"key_size"`
	ValueSize  [2]int  `json:"value_size"`
	Synced     bool    `json:"synced"` // write the free list; etcd does not
}

type source struct{ *rand.ChaCha8 }

func newSource(seed uint64) source {
	var wide [32]byte
	binary.LittleEndian.PutUint64(wide[:], seed)
	return source{rand.NewChaCha8(wide)}
}

func (random source) between(limits [2]int) int {
	return limits[0] + rand.New(random).IntN(limits[1]-limits[0]+1)
}

func (random source) chance(part float64) bool { return rand.New(random).Float64() < part }

func (random source) bytes(length int) []byte {
	made := make([]byte, length)
	random.Read(made)
	return made
}

func decode(specification string, into any) error {
	decoder := json.NewDecoder(bytes.NewReader([]byte(specification)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("specification: %w", err)
	}
	return nil
}

func makeFile(path, specification string) error {
	var spec makeSpec
	if err := decode(specification, &spec); err != nil {
		return err
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: already there", path)
	}
	options := &bolt.Options{
		PageSize:       spec.PageSize,
		NoFreelistSync: spec.Unsynced,
		FreelistType:   bolt.FreelistArrayType,
		NoSync:         true,
	}
	if spec.HashMap {
		options.FreelistType = bolt.FreelistMapType
	}
	db, err := bolt.Open(path, 0o600, options)
	if err != nil {
		return err
	}
	random := newSource(spec.Seed)
	for _, bucket := range spec.Buckets {
		if err := bucket.fill(db, nil, random); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	return errors.Join(db.Sync(), db.Close())
}

// Fill makes the bucket below `parents` and then its nested ones, each part in transactions of its own.
func (spec bucketSpec) fill(db *bolt.DB, parents [][]byte, random source) error {
	path := append(append([][]byte{}, parents...), []byte(spec.Name))
	rounds := max(1, spec.Transactions)
	counter := uint64(0)
	for round := range rounds {
		err := db.Update(func(tx *bolt.Tx) error {
			bucket, err := descend(tx, path)
			if err != nil {
				return err
			}
			if spec.Fill > 0 {
				bucket.FillPercent = spec.Fill
			}
			if spec.Sequence > 0 {
				if err := bucket.SetSequence(spec.Sequence); err != nil {
					return err
				}
			}
			for range spec.Keys*(round+1)/rounds - spec.Keys*round/rounds {
				counter++
				if err := bucket.Put(spec.row(counter, random)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if spec.Delete > 0 {
		if err := db.Update(func(tx *bolt.Tx) error { return spec.thin(tx, path, random) }); err != nil {
			return err
		}
	}
	for _, nested := range spec.Buckets {
		if err := nested.fill(db, path, random); err != nil {
			return err
		}
	}
	return nil
}

func (spec bucketSpec) row(counter uint64, random source) (key, value []byte) {
	key = random.bytes(max(1, random.between(spec.KeySize)))
	if spec.Sequential {
		key = append(binary.BigEndian.AppendUint64(nil, counter), key[min(8, len(key)):]...)
	}
	size := random.between(spec.ValueSize)
	if spec.BigEvery > 0 && counter%uint64(spec.BigEvery) == 0 {
		size = spec.BigSize
	}
	return key, random.bytes(size)
}

// Thin deletes a random part of the bucket's rows.  The keys are copied first: a cursor must not delete as it goes.
func (spec bucketSpec) thin(tx *bolt.Tx, path [][]byte, random source) error {
	bucket, err := descend(tx, path)
	if err != nil {
		return err
	}
	var doomed [][]byte
	err = bucket.ForEach(func(key, value []byte) error {
		if value != nil && random.chance(spec.Delete) {
			doomed = append(doomed, bytes.Clone(key))
		}
		return nil
	})
	for _, key := range doomed {
		err = errors.Join(err, bucket.Delete(key))
	}
	return err
}

func descend(tx *bolt.Tx, path [][]byte) (*bolt.Bucket, error) {
	bucket, err := tx.CreateBucketIfNotExists(path[0])
	for _, name := range path[1:] {
		if err != nil {
			return nil, err
		}
		bucket, err = bucket.CreateBucketIfNotExists(name)
	}
	return bucket, err
}

func commit(path, specification string) error {
	var spec commitSpec
	if err := decode(specification, &spec); err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{
		NoFreelistSync: !spec.Synced,
		FreelistType:   bolt.FreelistMapType,
		NoSync:         true,
	})
	if err != nil {
		return err
	}
	random := newSource(spec.Seed)
	for range spec.Commits {
		if err = db.Update(func(tx *bolt.Tx) error { return spec.apply(tx, random) }); err != nil {
			break
		}
	}
	return errors.Join(err, db.Sync(), db.Close())
}

func (spec commitSpec) apply(tx *bolt.Tx, random source) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(spec.Bucket))
	for range spec.Operations {
		if err != nil {
			break
		}
		if !random.chance(spec.Delete) {
			err = bucket.Put(random.bytes(max(1, random.between(spec.KeySize))), random.bytes(random.between(spec.ValueSize)))
			continue
		}
		cursor := bucket.Cursor()
		if key, value := cursor.Seek(random.bytes(2)); key != nil && value != nil {
			err = bucket.Delete(bytes.Clone(key))
		}
	}
	return err
}
