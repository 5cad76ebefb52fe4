// tests/e2e/rados/checker: is a history of reads and writes linearizable for each key? The history is a file of lines
// {"client", "key", "kind": "read" or "write", "value", "begin", "end"}, times in ns; end 0: never answered, so a write may have
// taken effect at any time after its begin, or not at all. The value "" is an absent key. The checker is Porcupine.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

type call struct {
	Client int    `json:"client"`
	Key    string `json:"key"`
	Kind   string `json:"kind"`
	Value  string `json:"value"`
	Begin  int64  `json:"begin"`
	End    int64  `json:"end"`
}

var register = porcupine.Model{
	Init: func() interface{} { return "" },
	Step: func(state, input, output interface{}) (bool, interface{}) {
		op := input.(call)
		if op.Kind == "write" {
			return true, op.Value
		}
		return state.(string) == op.Value, state
	},
	Equal: func(a, b interface{}) bool { return a.(string) == b.(string) },
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	keys, calls := map[string][]porcupine.Operation{}, 0
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var op call
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			fmt.Println(err)
			os.Exit(2)
		}
		end := op.End
		if end == 0 {
			end = math.MaxInt64
		}
		calls++
		keys[op.Key] = append(keys[op.Key], porcupine.Operation{ClientId: op.Client, Input: op, Call: op.Begin, Output: op, Return: end})
	}
	var names []string
	for name := range keys {
		names = append(names, name)
	}
	sort.Strings(names)
	wrong, unknown := 0, 0
	for _, name := range names {
		switch porcupine.CheckOperationsTimeout(register, keys[name], 60*time.Second) {
		case porcupine.Illegal:
			wrong++
			fmt.Printf("%s is not linearizable:\n", name)
			ops := keys[name]
			sort.Slice(ops, func(i, j int) bool { return ops[i].Call < ops[j].Call })
			for _, op := range ops {
				text, _ := json.Marshal(op.Input)
				fmt.Println(" ", string(text))
			}
		case porcupine.Unknown:
			unknown++
			fmt.Printf("%s: too much to check\n", name)
		}
	}
	fmt.Printf("%d calls on %d keys: %d not linearizable, %d not checked\n", calls, len(names), wrong, unknown)
	if wrong+unknown > 0 || calls == 0 {
		os.Exit(1)
	}
}
