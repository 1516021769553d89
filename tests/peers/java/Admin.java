import com.alibaba.otter.canal.protocol.AdminPacket;
import com.alibaba.otter.canal.protocol.SecurityUtil;
import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;

/**
 * Sends requests over canal's admin protocol as canal-admin does, with the messages and the scramble of canal's own
 * jar, and prints `code message` for each answer. canal-admin's connector itself is on no Maven repository.
 *
 * Arguments: port, user name, password, then requests: SERVER:action, INSTANCE:destination:action,
 * LOG:type:action:destination:lines.
 */
public final class Admin {
    private final DataInputStream in;
    private final DataOutputStream out;

    private Admin(Socket socket) throws Exception {
        in = new DataInputStream(socket.getInputStream());
        out = new DataOutputStream(socket.getOutputStream());
    }

    public static void main(String[] arguments) throws Exception {
        try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(arguments[0]))) {
            Admin admin = new Admin(socket);
            AdminPacket.Packet greeting = admin.read();
            if (greeting.getVersion() != 1 || greeting.getType() != AdminPacket.PacketType.HANDSHAKE) {
                throw new IllegalStateException("expect handshake but found other type.");
            }
            byte[] seed = AdminPacket.Handshake.parseFrom(greeting.getBody()).getSeeds().toByteArray();
            String token = SecurityUtil.byte2HexStr(SecurityUtil.scramble411(arguments[2].getBytes(), seed));
            admin.ask(AdminPacket.PacketType.CLIENTAUTHENTICATION, AdminPacket.ClientAuth.newBuilder()
                .setUsername(arguments[1])
                .setPassword(ByteString.copyFrom(token, StandardCharsets.UTF_8))
                .setNetReadTimeout(60000)
                .setNetWriteTimeout(60000)
                .build());
            for (int index = 3; index < arguments.length; index++) {
                admin.request(arguments[index].split(":", -1));
            }
        }
    }

    private void request(String[] words) throws Exception {
        switch (words[0]) {
            case "SERVER" -> ask(AdminPacket.PacketType.SERVER,
                AdminPacket.ServerAdmin.newBuilder().setAction(words[1]).build());
            case "INSTANCE" -> ask(AdminPacket.PacketType.INSTANCE,
                AdminPacket.InstanceAdmin.newBuilder().setDestination(words[1]).setAction(words[2]).build());
            default -> ask(AdminPacket.PacketType.LOG, AdminPacket.LogAdmin.newBuilder()
                .setType(words[1])
                .setAction(words[2])
                .setDestination(words[3])
                .setCount(Integer.parseInt(words[4]))
                .build());
        }
    }

    private void ask(AdminPacket.PacketType type, Message body) throws Exception {
        byte[] packet = AdminPacket.Packet.newBuilder().setType(type).setBody(body.toByteString()).build().toByteArray();
        out.writeInt(packet.length);
        out.write(packet);
        AdminPacket.Packet answer = read();
        if (answer.getType() != AdminPacket.PacketType.ACK) {
            throw new IllegalStateException("unexpected packet type when ack is expected");
        }
        AdminPacket.Ack ack = AdminPacket.Ack.parseFrom(answer.getBody());
        System.out.println(ack.getCode() + " " + ack.getMessage().replace("\n", "|"));
    }

    private AdminPacket.Packet read() throws Exception {
        byte[] packet = new byte[in.readInt()];
        in.readFully(packet);
        return AdminPacket.Packet.parseFrom(packet);
    }
}
