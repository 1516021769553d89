-- What a node needs in the database, and a table to try it with.
CREATE USER canal IDENTIFIED BY 'canal';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO canal;
CREATE DATABASE shop;
CREATE TABLE shop.orders (id BIGINT PRIMARY KEY AUTO_INCREMENT, customer VARCHAR(60), amount DECIMAL(12, 2));
