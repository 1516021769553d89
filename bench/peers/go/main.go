// What go-mysql's BinlogSyncer makes of a workload: rows parsed and counted, or handed on over TCP.
//
//	bench-go count FLAVOR PORT USER PASSWORD JOURNAL OFFSET ROWS
//	bench-go relay FLAVOR PORT USER PASSWORD JOURNAL OFFSET LISTEN
//
// count prints one JSON object: rows, seconds from connecting to the last row, the processor time and the memory used.
// relay serves one connection: a JSON array of the values of each inserted row, a line each, as soon as it is parsed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	fail(err)
	return value
}

func stream(arguments []string) *replication.BinlogStreamer {
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 4002,
		Flavor:   arguments[0],
		Host:     "127.0.0.1",
		Port:     uint16(number(arguments[1])),
		User:     arguments[2],
		Password: arguments[3],
		Logger:   slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	streamer, err := syncer.StartSync(mysql.Position{Name: arguments[4], Pos: uint32(number(arguments[5]))})
	fail(err)
	return streamer
}

func count(arguments []string) {
	wanted := number(arguments[6])
	began := time.Now()
	streamer := stream(arguments)
	seen := 0
	for seen < wanted {
		event, err := streamer.GetEvent(context.Background())
		fail(err)
		if rows, ok := event.Event.(*replication.RowsEvent); ok {
			if strings.HasPrefix(event.Header.EventType.String(), "UpdateRows") {
				seen += len(rows.Rows) / 2 // before and after
			} else {
				seen += len(rows.Rows)
			}
		}
	}
	seconds := time.Since(began).Seconds()
	var used syscall.Rusage
	fail(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	fail(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"rows":         wanted,
		"seconds":      seconds,
		"cpu_s":        time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds(),
		"memory_bytes": used.Maxrss * 1024,
	}))
}

func relay(arguments []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:"+arguments[6])
	fail(err)
	client, err := listener.Accept()
	fail(err)
	streamer := stream(arguments)
	out := bufio.NewWriter(client)
	lines := json.NewEncoder(out)
	for {
		event, err := streamer.GetEvent(context.Background())
		fail(err)
		rows, ok := event.Event.(*replication.RowsEvent)
		if !ok {
			continue
		}
		for _, row := range rows.Rows {
			fail(lines.Encode(row))
		}
		if out.Flush() != nil {
			return // the client has left
		}
	}
}

func main() {
	if len(os.Args) == 9 && os.Args[1] == "count" {
		count(os.Args[2:])
	} else if len(os.Args) == 9 && os.Args[1] == "relay" {
		relay(os.Args[2:])
	} else {
		fmt.Fprintln(os.Stderr, "bench-go count|relay FLAVOR PORT USER PASSWORD JOURNAL OFFSET ROWS|LISTEN")
		os.Exit(2)
	}
}
