// Reads messages as Python wrote them and writes them as Go does: one JSON object a line, in and out.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"os"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "google.golang.org/genproto/googleapis/rpc/status"

	_ "github.com/topospread/topospread/gen/go/topospread/v1"
)

// One message: its full name, its bytes, and what Python makes of it in JSON.
type sample struct {
	Type   string          `json:"type"`
	Binary []byte          `json:"binary"`
	JSON   json.RawMessage `json:"json"`
}

// The bytes as JSON, and the JSON as bytes.
type answer struct {
	JSON   json.RawMessage `json:"json,omitempty"`
	Binary []byte          `json:"binary"`
	Error  string          `json:"error,omitempty"`
}

func convert(given sample) (made answer, err error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(given.Type))
	if err != nil {
		return made, err
	}
	message := kind.New().Interface()
	if err := proto.Unmarshal(given.Binary, message); err != nil {
		return made, err
	}
	if made.JSON, err = protojson.Marshal(message); err != nil {
		return made, err
	}
	read := kind.New().Interface()
	if err := protojson.Unmarshal(given.JSON, read); err != nil {
		return made, err
	}
	made.Binary, err = proto.Marshal(read)
	return made, err
}

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var given sample
		if err := in.Decode(&given); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		made, err := convert(given)
		if err != nil {
			made = answer{Error: err.Error()}
		}
		if err := out.Encode(made); err != nil {
			log.Fatal(err)
		}
	}
}
