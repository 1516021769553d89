-- What the node's user may do, which the image creates with its password, and a table to try it with.
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO canal;
CREATE DATABASE shop;
CREATE TABLE shop.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer VARCHAR(60), amount DECIMAL(12, 2));
