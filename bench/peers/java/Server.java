import com.alibaba.otter.canal.instance.manager.CanalInstanceWithManager;
import com.alibaba.otter.canal.instance.manager.model.Canal;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter.DataSourcing;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter.IndexMode;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter.MetaMode;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter.SourcingType;
import com.alibaba.otter.canal.instance.manager.model.CanalParameter.StorageMode;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.server.netty.CanalServerWithNetty;
import java.net.InetSocketAddress;
import java.util.List;

/**
 * canal's server with one destination, `bench`, its memory store and its TCP protocol, as the deployer wires them.
 * Cursors and table definitions stay in memory; the parser is the sequential one, which two cores serve best.
 *
 * Arguments: port, the database's port, user, password, journal, offset, filter.
 */
public final class Server {
    public static void main(String[] arguments) {
        CanalParameter parameters = new CanalParameter();
        parameters.setMetaMode(MetaMode.MEMORY);
        parameters.setIndexMode(IndexMode.MEMORY_META_FAILBACK);
        parameters.setStorageMode(StorageMode.MEMORY);
        parameters.setSourcingType(SourcingType.MYSQL);
        DataSourcing source = new DataSourcing(
            SourcingType.MYSQL, new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[1])));
        parameters.setGroupDbAddresses(List.of(List.of(source)));
        parameters.setDbUsername(arguments[2]);
        parameters.setDbPassword(arguments[3]);
        parameters.setDefaultDatabaseName("bench");
        parameters.setPositions(List.of(
            "{\"journalName\":\"" + arguments[4] + "\",\"position\":" + arguments[5] + ",\"timestamp\":0}"));
        parameters.setSlaveId(4003L);
        parameters.setDetectingEnable(false);
        parameters.setTsdbEnable(false);
        parameters.setParallel(false);
        Canal canal = new Canal();
        canal.setId(1L);
        canal.setName("bench");
        canal.setCanalParameter(parameters);

        CanalServerWithEmbedded embedded = CanalServerWithEmbedded.instance();
        embedded.setCanalInstanceGenerator(destination -> new CanalInstanceWithManager(canal, arguments[6]));
        embedded.start();
        embedded.start("bench");
        CanalServerWithNetty server = CanalServerWithNetty.instance();
        server.setIp("127.0.0.1");
        server.setPort(Integer.parseInt(arguments[0]));
        server.start();
    }
}
