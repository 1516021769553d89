import com.alibaba.otter.canal.client.CanalConnector;
import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.Message;

/**
 * canal's own cluster client: prints the columns of each inserted row as name=value, acknowledges, and goes on until it
 * is killed. It never connects anew by itself: what it survives, it survives inside the connector.
 *
 * Arguments: ZooKeeper servers, destination, milliseconds between a batch and its acknowledgement.
 */
public final class Follow {
    public static void main(String[] arguments) throws Exception {
        CanalConnector connector = CanalConnectors.newClusterConnector(arguments[0], arguments[1], "", "");
        connector.connect();
        connector.subscribe();
        System.out.println("subscribed");
        while (true) {
            Message message = connector.getWithoutAck(200, 100L, java.util.concurrent.TimeUnit.MILLISECONDS);
            StringBuilder lines = new StringBuilder();
            for (CanalEntry.Entry entry : message.getEntries()) {
                if (entry.getEntryType() != CanalEntry.EntryType.ROWDATA) {
                    continue;
                }
                for (CanalEntry.RowData row : CanalEntry.RowChange.parseFrom(entry.getStoreValue()).getRowDatasList()) {
                    for (CanalEntry.Column column : row.getAfterColumnsList()) {
                        lines.append(column.getName()).append('=').append(column.getValue()).append(' ');
                    }
                    lines.append('\n');
                }
            }
            System.out.print(lines);
            System.out.flush();
            if (lines.length() > 0) {
                Thread.sleep(Long.parseLong(arguments[2]));
            }
            connector.ack(message.getId());
        }
    }
}
