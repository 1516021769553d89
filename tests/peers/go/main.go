// canal-go, the Go client: a line for every row, as tests/peers/lines.py has them, each batch acknowledged. Says
// `subscribed` first.
//
// Arguments: port, destination, client id, filter, rows to read, user name, password.
package main

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/withlin/canal-go/client"
	pb "github.com/withlin/canal-go/protocol/entry"
	"google.golang.org/protobuf/proto"
)

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	arguments := os.Args[1:]
	connector := client.NewSimpleCanalConnector(
		"127.0.0.1", number(arguments[0]), arguments[5], arguments[6], arguments[1], 60000, 60*60*1000)
	connector.ClientIdentity.ClientId = number(arguments[2])
	if err := connector.Connect(); err != nil {
		log.Fatal(err)
	}
	if err := connector.Subscribe(arguments[3]); err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, "subscribed")
	out.Flush()
	for left := number(arguments[4]); left > 0; {
		message, err := connector.GetWithOutAck(100, nil, nil)
		if err != nil {
			log.Fatal(err)
		}
		if message.Id == -1 || len(message.Entries) == 0 {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for i := range message.Entries {
			left -= write(out, &message.Entries[i])
		}
		if err := connector.Ack(message.Id); err != nil {
			log.Fatal(err)
		}
		out.Flush()
	}
	connector.DisConnection()
}

func write(out *bufio.Writer, entry *pb.Entry) int {
	if entry.GetEntryType() != pb.EntryType_ROWDATA {
		return 0
	}
	change := new(pb.RowChange)
	if err := proto.Unmarshal(entry.GetStoreValue(), change); err != nil {
		log.Fatal(err)
	}
	for _, row := range change.GetRowDatas() {
		fmt.Fprintf(out, "%s\t%s\t%s", entry.Header.GetSchemaName(), entry.Header.GetTableName(), change.GetEventType())
		columns(out, "before", row.GetBeforeColumns())
		columns(out, "after", row.GetAfterColumns())
		fmt.Fprintln(out)
	}
	return len(change.GetRowDatas())
}

func columns(out *bufio.Writer, side string, columns []*pb.Column) {
	for _, column := range columns {
		value := "NULL"
		if !column.GetIsNull() {
			value = base64.StdEncoding.EncodeToString([]byte(column.GetValue()))
		}
		updated := 0
		if column.GetUpdated() {
			updated = 1
		}
		fmt.Fprintf(out, "\t%s %s %d %s", side, column.GetName(), updated, value)
	}
}
