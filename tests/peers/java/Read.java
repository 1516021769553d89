import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;

/**
 * canal's simple client: a line for every row, as tests/peers/lines.py has them, each batch acknowledged. Says
 * `subscribed` first, and `batches N milliseconds M` last: the time from GET to behind ACK of the batches with entries.
 *
 * Arguments: port, destination, filter, rows to read, entries or kilobytes a batch, user name, password.
 */
public final class Read {
    public static void main(String[] arguments) throws Exception {
        CanalConnector connector = CanalConnectors.newSingleConnector(
            new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), arguments[1], arguments[5], arguments[6]);
        connector.connect();
        connector.subscribe(arguments[2]);
        System.out.println("subscribed");
        int left = Integer.parseInt(arguments[3]);
        int size = Integer.parseInt(arguments[4]);
        int batches = 0;
        long nanoseconds = 0;
        while (left > 0) {
            long began = System.nanoTime();
            Message message = connector.getWithoutAck(size);
            if (message.getId() == -1 || message.getEntries().isEmpty()) {
                Thread.sleep(20);
                continue;
            }
            connector.ack(message.getId());
            nanoseconds += System.nanoTime() - began;
            batches++;
            StringBuilder lines = new StringBuilder();
            for (CanalEntry.Entry entry : message.getEntries()) {
                if (entry.getEntryType() == CanalEntry.EntryType.ROWDATA) {
                    left -= append(lines, entry);
                }
            }
            System.out.print(lines);
        }
        System.out.println("batches " + batches + " milliseconds " + nanoseconds / 1e6);
        System.out.flush();
        connector.disconnect();
    }

    private static int append(StringBuilder lines, CanalEntry.Entry entry) throws Exception {
        CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
        for (CanalEntry.RowData row : change.getRowDatasList()) {
            lines.append(entry.getHeader().getSchemaName()).append('\t').append(entry.getHeader().getTableName());
            lines.append('\t').append(change.getEventType());
            append(lines, "before", row.getBeforeColumnsList());
            append(lines, "after", row.getAfterColumnsList());
            lines.append('\n');
        }
        return change.getRowDatasCount();
    }

    private static void append(StringBuilder lines, String side, List<CanalEntry.Column> columns) {
        for (CanalEntry.Column column : columns) {
            lines.append('\t').append(side).append(' ').append(column.getName()).append(' ');
            lines.append(column.getUpdated() ? 1 : 0).append(' ');
            lines.append(column.getIsNull() ? "NULL"
                : Base64.getEncoder().encodeToString(column.getValue().getBytes(StandardCharsets.UTF_8)));
        }
    }
}
