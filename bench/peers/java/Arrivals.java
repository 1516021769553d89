import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * canal's simple client, which polls: a GET that does not wait, and a pause of a millisecond after an empty answer. Writes
 * when each row of bench/paced.py arrived into a file, as bench/readers/arrivals.py does: nanoseconds of the monotonic
 * clock by id.
 *
 * Arguments: port, destination, rows, kilobytes a batch, file.
 */
public final class Arrivals {
    public static void main(String[] arguments) throws Exception {
        int rows = Integer.parseInt(arguments[2]);
        int size = Integer.parseInt(arguments[3]);
        ByteBuffer arrived = ByteBuffer.allocate(8 * (rows + 1)).order(ByteOrder.nativeOrder());
        CanalConnector connector = CanalConnectors.newSingleConnector(
            new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])), arguments[1], "", "");
        connector.connect();
        connector.subscribe();
        for (int newest = 0; newest < rows; ) {
            Message message = connector.getWithoutAck(size);
            if (message.getId() == -1 || message.getEntries().isEmpty()) {
                Thread.sleep(1);
                continue;
            }
            for (CanalEntry.Entry entry : message.getEntries()) {
                if (entry.getEntryType() != CanalEntry.EntryType.ROWDATA) {
                    continue;
                }
                CanalEntry.RowChange change = CanalEntry.RowChange.parseFrom(entry.getStoreValue());
                if (change.getIsDdl()) {
                    continue;
                }
                for (CanalEntry.RowData row : change.getRowDatasList()) {
                    newest = Integer.parseInt(row.getAfterColumns(0).getValue());
                    arrived.putLong(8 * newest, System.nanoTime());
                }
            }
            connector.ack(message.getId());
        }
        Files.write(Path.of(arguments[4]), arrived.array());
        System.out.println("{\"rows\": " + rows + "}");
        System.out.flush();
        connector.disconnect();
    }
}
